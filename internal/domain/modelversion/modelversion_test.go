package modelversion

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"sovereign/internal/base/fault"
	"sovereign/internal/domain/train"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
	"sovereign/internal/store/vault"
)

type fixture struct {
	*Store
	t     *testing.T
	vault *vault.Vault
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine, dbtest.Theirs)
		root, err := vault.CreateRoot(filepath.Join(t.TempDir(), "root.key"))
		if err != nil {
			t.Fatal(err)
		}
		v, err := vault.Open(t.Context(), d, root)
		if err != nil {
			t.Fatal(err)
		}
		folder, err := artifact.OpenFolder(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		test(t, &fixture{NewStore(d, artifact.NewStore(d, folder), v), t, v})
	})
}

// create makes a version, of the base model or of a parent.
func (f *fixture) create(name string, parent *string) Version {
	f.t.Helper()
	ctx := f.t.Context()
	var files train.Manifest
	for _, at := range []string{"model.bin", "state/optimizer.bin"} {
		stored, err := f.artifacts.Add(ctx, dbtest.Mine, strings.NewReader(at+" of "+name), 100)
		if err != nil {
			f.t.Fatal(err)
		}
		files = append(files, train.Member{Name: at, File: stored})
	}
	var made Version
	_, err := f.db.Tx(ctx, func(tx *db.Tx) (err error) {
		made, err = f.Create(ctx, tx, dbtest.Mine, dbtest.Ann, New{Files: files, Proof: Proof{
			Name: name, BaseModel: "tiny/bigram", ParentID: parent, Method: "sft", Hyperparams: jsontext.Value("{}"),
			Source: Source{"fine_tuning_job", "ftjob_" + name, 7}, Certificates: []string{"cert_1"},
			Data: []Data{{"train.jsonl", "file_1", files[0].Digest}},
		}})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

func TestAVersionIsSignedAndHasNoFilesOfTheTrainer(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		made := f.create("ft/a", nil)
		got, err := f.Get(t.Context(), dbtest.Mine, made.ID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := f.vault.JWKS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vault.VerifyDocument(text, keys); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		forged := strings.Replace(string(text), `"method":"sft"`, `"method":"dpo"`, 1)
		if _, err := vault.VerifyDocument([]byte(forged), keys); err == nil {
			t.Error("a forged version verifies")
		}
		files, err := f.Files(t.Context(), dbtest.Mine, made.ID)
		if err != nil || len(files) != 1 || files[0].Name != "model.bin" || made.Bytes != files.Bytes() {
			t.Errorf("%+v %v", files, err)
		}
		from, err := f.Open(t.Context(), dbtest.Mine, made.ID, "model.bin")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = from.Close() }()
		if all, err := io.ReadAll(from); err != nil || string(all) != "model.bin of ft/a" {
			t.Errorf("%s %v", all, err)
		}
		for _, name := range []string{"state/optimizer.bin", "../model.bin", ""} {
			if _, err := f.Open(t.Context(), dbtest.Mine, made.ID, name); err == nil || fault.From(err).Kind != fault.Missing {
				t.Errorf("%q: %v", name, err)
			}
		}
		if _, err := f.Open(t.Context(), dbtest.Theirs, made.ID, "model.bin"); err == nil || fault.From(err).Kind != fault.Missing {
			t.Errorf("another workspace: %v", err)
		}
	})
}

func TestALineageGoesBackToTheBaseModelOrToADeletedVersion(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		first := f.create("ft/a", nil)
		second := f.create("ft/b", &first.ID)
		kinds := func() string {
			l, err := f.Lineage(t.Context(), dbtest.Mine, second.ID)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, n := range l.Nodes {
				all = append(all, n.Type+" "+n.Name)
			}
			return strings.Join(all, ", ")
		}
		if got, want := kinds(), "model_version ft/b, fine_tuning_job sft, step 7, training_file train.jsonl, certificate cert_1, "+
			"model_version ft/a, fine_tuning_job sft, step 7, base_model tiny/bigram"; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if err := f.Delete(t.Context(), dbtest.Mine, dbtest.Ann, first.ID); err != nil {
			t.Fatal(err)
		}
		if got, want := kinds(), "model_version ft/b, fine_tuning_job sft, step 7, training_file train.jsonl, certificate cert_1, "+
			"model_version deleted"; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if _, err := f.Lineage(t.Context(), dbtest.Mine, first.ID); err == nil || fault.From(err).Kind != fault.Missing {
			t.Error(err)
		}
	})
}
