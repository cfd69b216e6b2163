package db

import (
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode"
)

// scanner returns a function that reads the next row as a T.
func scanner[T any](rows *sql.Rows) (func() (T, error), error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, wrapUnavailable(err)
	}
	kind := reflect.TypeFor[T]()
	if kind.Kind() != reflect.Struct {
		if len(columns) != 1 {
			return nil, fmt.Errorf("%d columns do not fit one %s", len(columns), kind)
		}
		return func() (T, error) {
			var value T
			return value, rows.Scan(&value)
		}, nil
	}
	fields := fieldsOf(kind)
	indices := make([][]int, len(columns))
	for i, column := range columns {
		index, ok := fields[column]
		if !ok {
			return nil, fmt.Errorf("%s has no field for column %s", kind, column)
		}
		indices[i] = index
	}
	// Every row is read into the same value, whose fields are looked up once, and copied. Scan copies bytes, and sets a
	// pointer that is nil to a new value: rows share nothing.
	value := new(T)
	whole, targets := reflect.ValueOf(value).Elem(), make([]any, len(columns))
	for i, index := range indices {
		targets[i] = whole.FieldByIndex(index).Addr().Interface()
	}
	return func() (T, error) {
		var none T
		*value = none
		err := rows.Scan(targets...)
		return *value, err
	}, nil
}

var fieldCache sync.Map // reflect.Type → map[string][]int

// fieldsOf maps columns to fields. Fields of embedded structs count; the struct's own fields take precedence over
// them.
func fieldsOf(kind reflect.Type) map[string][]int {
	if fields, ok := fieldCache.Load(kind); ok {
		return fields.(map[string][]int)
	}
	fields := map[string][]int{}
	for _, f := range reflect.VisibleFields(kind) {
		if !f.IsExported() {
			continue
		}
		column := f.Tag.Get("db")
		if column == "" {
			column = snake(f.Name)
		}
		if own, taken := fields[column]; !taken || len(f.Index) < len(own) {
			fields[column] = f.Index
		}
	}
	fieldCache.Store(kind, fields)
	return fields
}

// snake returns a Go name as a column name: LastUsedAt is last_used_at, UserID is user_id.
func snake(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) {
			startsWord := i > 0 && (unicode.IsLower(runes[i-1]) || (i+1 < len(runes) && unicode.IsLower(runes[i+1])))
			if startsWord {
				out.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}
