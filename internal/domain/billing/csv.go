package billing

import (
	"encoding/csv"
	"io"
	"strconv"

	"sovereign/internal/domain/usage"
	"sovereign/internal/domain/wallet"
)

// csvHeader are the columns of a downloaded statement. The amounts of the lines between opening and closing sum to
// their difference.
var csvHeader = []string{
	"line", "at", "amount_usd", "model", "key_id", "requests", "input_tokens", "output_tokens", "cost_usd", "id",
	"memo",
}

// writeCSV writes a statement: the opening balance, every transfer, usage by model and key, the closing balance.
func writeCSV(w io.Writer, s *wallet.Statement) error {
	out := csv.NewWriter(w)
	row := func(cells ...string) { _ = out.Write(append(cells, make([]string, len(csvHeader)-len(cells))...)) }
	row(csvHeader...)
	row("opening", s.From.String(), s.Opening.String())
	for _, m := range s.Transfers {
		row(m.Kind, m.At.String(), m.Amount.String(), "", "", "", "", "", "", cell(m.ID), cell(m.Memo))
	}
	for _, l := range s.Lines {
		row("usage", "", (-l.Charged).String(), cell(l.Model), cell(l.KeyID), strconv.FormatInt(l.Requests, 10),
			strconv.FormatInt(l.Input, 10), strconv.FormatInt(l.Output, 10), l.Cost.String())
	}
	row("closing", s.To.String(), s.Closing.String())
	out.Flush()
	return out.Error()
}

// cell is a text as a cell that no spreadsheet takes for a formula.
var cell = usage.SafeCell
