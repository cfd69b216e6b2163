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
	"strings"
	"testing"

	"sovereign/internal/backup"
	"sovereign/internal/db"
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

// end sums rows of users honestly.
func end(rows string) file {
	sum := sha256.Sum256([]byte(rows))
	return file{"end.json", fmt.Sprintf(`{"rows":{"users":%d},"sha256":%q}`, strings.Count(rows, "\n"), hex.EncodeToString(sum[:]))}
}

func TestWhatDoesNotAddUpIsBroken(t *testing.T) {
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

// Columns and tables go into SQL, so that a header may name only those of the schema.
func TestAHeaderThatNamesWhatTheSchemaHasNotIsBroken(t *testing.T) {
	for _, engine := range engines {
		target := open(t, engine)
		for why, header := range map[string]string{
			"a table":               strings.Replace(usersHeader, `"users"`, `"goose_db_version"`, 1),
			"a column":              strings.Replace(usersHeader, `"email"`, `"email) VALUES ('x'); --"`, 1),
			"a kind of column":      strings.Replace(usersHeader, `"integer"`, `"text"`, 1),
			"a column without kind": strings.Replace(usersHeader, `"integer"`, `""`, 1),
		} {
			hostile := zip(pack(file{"sovereign-backup.json", header}))
			if _, _, err := backup.Restore(t.Context(), target, bytes.NewReader(hostile), accepted); !errors.Is(err, backup.ErrBroken) || strings.Contains(err.Error(), "breaks off") {
				t.Errorf("%s on %s: %v", why, engine, err)
			}
		}
	}
}

func TestABackupOfANewerSchemaIsRefused(t *testing.T) {
	newer := zip(pack(file{"sovereign-backup.json", strings.Replace(usersHeader, `"schema":1`, `"schema":99999`, 1)}, file{usersDir, oneUser}, end(oneUser)))
	for _, engine := range engines {
		if _, _, err := backup.Restore(t.Context(), open(t, engine), bytes.NewReader(newer), accepted); !errors.Is(err, db.ErrNewer) {
			t.Errorf("%s: %v", engine, err)
		}
	}
}

// The fuzzer changes what is inside the gzip: a changed gzip hardly ever gets past its own sums.
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
