package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"sovereign/internal/store/backup"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

const (
	usersHeader = `{"format":1,"schema":1,"created_at":"2026-03-01T00:00:00.000Z","tables":[{"name":"users","columns":[
		{"name":"id","kind":"text"},{"name":"email","kind":"text"},{"name":"created_at","kind":"integer"}]}]}`
	oneUser  = `["usr_1","a@b.c",1]` + "\n"
	usersDir = "rows/users/000001.jsonl"
)

type file struct{ name, content string }

func pack(files ...file) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.content))}); err != nil {
			panic(err)
		}
		if _, err := w.Write([]byte(f.content)); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func zip(content []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// end returns the correct end record for rows of users.
func end(rows string) file {
	sum := sha256.Sum256([]byte(rows))
	return file{"end.json", fmt.Sprintf(`{"rows":{"users":%d},"sha256":%q}`, strings.Count(rows, "\n"), hex.EncodeToString(sum[:]))}
}

func TestAnInconsistentBackupIsBroken(t *testing.T) {
	header, rows := file{"sovereign-backup.json", usersHeader}, file{usersDir, oneUser}
	if _, err := rowsOf(zip(pack(header, rows, end(oneUser)))); err != nil {
		t.Fatalf("a whole file: %v", err)
	}
	bad := func(line string) []file { return []file{header, {usersDir, line}, end(line)} }
	for why, files := range map[string][]file{
		"no file":                 {},
		"no header":               {rows, end(oneUser)},
		"no end":                  {header, rows},
		"no rows":                 {header, end(oneUser)},
		"a row too many":          {header, {usersDir, oneUser + oneUser}, end(oneUser)},
		"another row":             {header, {usersDir, strings.Replace(oneUser, "1]", "2]", 1)}, end(oneUser)},
		"a table not in header":   {header, {"rows/members/000001.jsonl", oneUser}, end(oneUser)},
		"a file elsewhere":        {header, {"../users/000001.jsonl", oneUser}, end(oneUser)},
		"a file without a folder": {header, {"users", oneUser}, end(oneUser)},
		"something after the end": {header, rows, end(oneUser), rows},
		"the header twice":        {header, header, rows, end(oneUser)},
		"a column too few":        bad(`["usr_1","a@b.c"]` + "\n"),
		"a column too many":       bad(`["usr_1","a@b.c",1,2]` + "\n"),
		"text for a number":       bad(`["usr_1","a@b.c","1"]` + "\n"),
		"a fraction":              bad(`["usr_1","a@b.c",1.5]` + "\n"),
		"a number over 64 bits":   bad(`["usr_1","a@b.c",9223372036854775808]` + "\n"),
		"an object":               bad(`{"id":"usr_1"}` + "\n"),
		"half a row":              bad(`["usr_1",` + "\n"),
		"a kind nobody knows":     {{header.name, strings.Replace(usersHeader, "integer", "float", 1)}, rows, end(oneUser)},
		"a header that is a list": {{header.name, "[]"}, rows, end(oneUser)},
	} {
		if _, err := rowsOf(zip(pack(files...))); !errors.Is(err, backup.ErrBroken) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

func TestAFutureFormatIsRefused(t *testing.T) {
	if _, err := rowsOf(zip(pack(file{"sovereign-backup.json", `{"format":2}`}))); err == nil {
		t.Error("read")
	}
}

// Names of tables and columns go into SQL, so a header may name only those of the schema; and it must name all.
func TestAHeaderWhoseTablesAreNotTheSchemasIsBroken(t *testing.T) {
	whole, err := backup.NewReader(bytes.NewReader(write(t, dbtest.Migrated(t, db.SQLite))))
	if err != nil {
		t.Fatal(err)
	}
	const evil = `users (id, email, created_at) VALUES ('usr_evil', 'evil', 1) --`
	nothing := sha256.Sum256(nil)
	for _, engine := range engines {
		target := open(t, engine)
		restore := func(tables []db.Table, more ...file) error {
			header := whole.Header
			header.Tables = tables
			text, err := json.Marshal(header)
			if err != nil {
				t.Fatal(err)
			}
			none := file{"end.json", fmt.Sprintf(`{"rows":{},"sha256":%q}`, hex.EncodeToString(nothing[:]))}
			files := append([]file{{"sovereign-backup.json", string(text)}}, append(more, none)...)
			_, _, err = restore(t.Context(), target, bytes.NewReader(zip(pack(files...))), accepted)
			return err
		}
		users := slices.IndexFunc(whole.Header.Tables, func(table db.Table) bool { return table.Name == "users" })
		change := func(edit func(*db.Table)) []db.Table {
			tables := slices.Clone(whole.Header.Tables)
			tables[users].Columns = slices.Clone(tables[users].Columns)
			edit(&tables[users])
			return tables
		}
		for why, tables := range map[string][]db.Table{
			"another table":         change(func(u *db.Table) { u.Name = "goose_db_version" }),
			"another column":        change(func(u *db.Table) { u.Columns[1].Name = "email) VALUES ('x'); --" }),
			"another kind":          change(func(u *db.Table) { u.Columns[2].Kind = db.Text }),
			"no kind":               change(func(u *db.Table) { u.Columns[2].Kind = "" }),
			"a column twice":        change(func(u *db.Table) { u.Columns[1] = u.Columns[0] }),
			"a column left out":     change(func(u *db.Table) { u.Columns = u.Columns[:2] }),
			"a table left out":      whole.Header.Tables[1:],
			"a table twice":         append(slices.Clone(whole.Header.Tables[1:]), whole.Header.Tables[1]),
			"no table":              nil,
			"one without columns":   append(slices.Clone(whole.Header.Tables), db.Table{Name: evil}),
			"one of only its names": change(func(u *db.Table) { u.Columns = nil }),
		} {
			if err := restore(tables, file{"rows/" + evil + "/1", "[]\n"}); !errors.Is(err, backup.ErrBroken) || strings.Contains(err.Error(), "strange file") {
				t.Errorf("%s on %s: %v", why, engine, err)
			}
		}
		if err := restore(whole.Header.Tables); err != nil {
			t.Errorf("the schema's own tables on %s: %v", engine, err)
		}
	}
}

func TestABackupOfANewerSchemaIsRefused(t *testing.T) {
	newer := zip(pack(file{"sovereign-backup.json", strings.Replace(usersHeader, `"schema":1`, `"schema":99999`, 1)}, file{usersDir, oneUser}, end(oneUser)))
	for _, engine := range engines {
		if _, _, err := restore(t.Context(), open(t, engine), bytes.NewReader(newer), accepted); !errors.Is(err, db.ErrNewer) {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

// The fuzzer changes what is inside the gzip: a changed gzip hardly ever passes its own checksum.
func FuzzReader(f *testing.F) {
	header, rows := file{"sovereign-backup.json", usersHeader}, file{usersDir, oneUser}
	f.Add(pack(header, rows, end(oneUser)))
	f.Add(pack(header, rows))
	f.Add(pack(header, file{"end.json", `{"rows":{},"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`}))
	f.Add(pack(file{"sovereign-backup.json", `{"format":1,"tables":[{"name":"t","columns":[]}]}`}, file{"rows/t/1", "[]\n"}, end("")))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		if _, err := backup.NewReader(bytes.NewReader(content)); err == nil && !bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
			t.Fatal("reads what is not gzip")
		}
		r, err := backup.NewReader(bytes.NewReader(zip(content)))
		if err != nil {
			return
		}
		counts := map[string]int64{}
		told, err := r.Each(func(table db.Table, rows [][]any) error {
			for _, row := range rows {
				if len(row) != len(table.Columns) {
					t.Fatalf("%v for %v", row, table)
				}
			}
			counts[table.Name] += int64(len(rows))
			return nil
		})
		if err == nil && !maps.Equal(told.Rows, counts) {
			t.Fatalf("%v were told of and %v handed over", told.Rows, counts)
		}
	})
}
