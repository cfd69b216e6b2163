package artifact_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/artifact/artifacttest"
	"sovereign/internal/store/db"
	"sovereign/internal/store/db/dbtest"
)

// text is a file of tests, and f its name.
const text = "the weights of a model"

var f = artifact.File{Digest: artifact.DigestOf([]byte(text)), Bytes: int64(len(text))}

// newS3 returns a backend before an S3 in memory, with what spoils its requests.
func newS3(t *testing.T, m *artifacttest.Memory, change func(*artifact.S3Config)) (*artifact.S3, *artifacttest.Faulty) {
	t.Helper()
	faulty := artifacttest.NewFaulty(t, m)
	config := artifacttest.Config(t, faulty.URL)
	if change != nil {
		change(&config)
	}
	made, err := artifact.NewS3(config)
	if err != nil {
		t.Fatal(err)
	}
	return made, faulty
}

func TestABackendKeepsWhatWasNamed(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (b artifact.Backend, clean func() bool){
		"folder": func(t *testing.T) (artifact.Backend, func() bool) {
			at := t.TempDir()
			folder, err := artifact.OpenFolder(at)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = folder.Close() })
			return folder, func() bool {
				left, err := os.ReadDir(filepath.Join(at, "incoming"))
				return err == nil && len(left) == 0
			}
		},
		"S3":                   func(t *testing.T) (artifact.Backend, func() bool) { return memory(t, false, 0) },
		"S3 in parts":          func(t *testing.T) (artifact.Backend, func() bool) { return memory(t, false, 1<<19) },
		"S3 without checksums": func(t *testing.T) (artifact.Backend, func() bool) { return memory(t, true, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			b, clean := open(t)
			artifacttest.Conform(t, b)
			if !clean() {
				t.Error("it is not clean")
			}
		})
	}
}

func memory(t *testing.T, blind bool, part int64) (artifact.Backend, func() bool) {
	t.Helper()
	m := &artifacttest.Memory{Blind: blind}
	b, _ := newS3(t, m, func(c *artifact.S3Config) { c.PartSize = part })
	return b, func() bool {
		keys, unfinished := m.Keys()
		sent := "a/b/ws_mine/" + string(artifact.DigestOf([]byte("sent by a worker"))) // by the last part of the suite
		return unfinished == 0 && len(slices.DeleteFunc(keys, func(k string) bool { return k == sent })) == 0
	}
}

// A store that does not compare checksums gets bytes from the server alone, since a worker could send others.
func TestAWorkerSendsNothingByItselfToAStoreThatDoesNotCompare(t *testing.T) {
	b, _ := newS3(t, &artifacttest.Memory{Blind: true}, nil)
	if to, err := b.Upload(t.Context(), dbtest.Mine, f); err != nil || to.URL != "" {
		t.Errorf("%+v %v", to, err)
	}
}

// Whatever becomes of a request, a file is either stored whole or not stored, the sender learns which, and the next try
// succeeds.
func TestAnS3ThatFailsHalfWayLosesNothing(t *testing.T) {
	for _, fault := range []artifacttest.Fault{
		artifacttest.CutRequest, artifacttest.Broken, artifacttest.SlowDown, artifacttest.Lie,
	} {
		t.Run(string(fault), func(t *testing.T) {
			for _, part := range []int64{0, 4} {
				m := &artifacttest.Memory{}
				b, faulty := newS3(t, m, func(c *artifact.S3Config) { c.PartSize = part })
				faulty.Spoil(func(r *http.Request) artifacttest.Fault {
					if r.Method == http.MethodPut {
						return fault
					}
					return artifacttest.None
				})
				err := b.Put(t.Context(), dbtest.Mine, f, strings.NewReader(text))
				if !errors.Is(err, artifact.ErrUnreachable) {
					t.Errorf("part %d: %v", part, err)
				}
				if keys, unfinished := m.Keys(); len(keys)+unfinished != 0 {
					t.Errorf("part %d: %v is stored, %d have begun", part, keys, unfinished)
				}
				if faulty.Seen(fault) == 0 {
					t.Error("nothing was spoiled")
				}
				faulty.Spoil(func(*http.Request) artifacttest.Fault { return artifacttest.None })
				if err := b.Put(t.Context(), dbtest.Mine, f, strings.NewReader(text)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A read gives the bytes of the file's name, or an error at its end.
func TestAReadOfWrongBytesIsRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		b, faulty := newS3(t, &artifacttest.Memory{}, nil)
		s := artifact.NewStore(d, b)
		if _, err := s.Add(t.Context(), dbtest.Mine, strings.NewReader(text), 100); err != nil {
			t.Fatal(err)
		}
		for fault, want := range map[artifacttest.Fault]error{
			artifacttest.WrongBytes: artifact.ErrMismatch, artifacttest.Lie: artifact.ErrUnreachable,
			artifacttest.Shorter: artifact.ErrMismatch, artifacttest.CutAnswer: io.ErrUnexpectedEOF,
		} {
			faulty.Spoil(func(*http.Request) artifacttest.Fault { return fault })
			if got, err := readAll(t, s, dbtest.Mine); !errors.Is(err, want) {
				t.Errorf("%s: %q %v", fault, got, err)
			}
		}
		faulty.Spoil(func(*http.Request) artifacttest.Fault { return artifacttest.Broken })
		if _, err := readAll(t, s, dbtest.Mine); fault.From(err).Kind != fault.Unavailable {
			t.Errorf("it does not answer: %v", err)
		}
	})
}

func readAll(t *testing.T, s *artifact.Store, ws tenant.ID) (string, error) {
	t.Helper()
	from, err := s.Open(t.Context(), ws, f.Digest)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	all, err := io.ReadAll(from)
	return string(all), err
}

// A bucket that cannot be reached is refused with 503, and used as soon as it can.
func TestAStoreThatDoesNotAnswerIsTriedAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dbtest.AddWorkspaces(t, d, dbtest.Mine)
		b, _ := newS3(t, &artifacttest.Memory{}, func(c *artifact.S3Config) { c.Bucket = "another" })
		s := artifact.NewStore(d, b)
		for name, try := range map[string]func() error{
			"ready": func() error { return s.Ready(t.Context()) },
			"offer": func() error { _, err := s.Offer(t.Context(), dbtest.Mine, f); return err },
			"add":   func() error { _, err := s.Add(t.Context(), dbtest.Mine, strings.NewReader(text), 100); return err },
		} {
			if err := try(); err == nil || fault.From(err).Kind != fault.Unavailable || fault.From(err).RetryAfter == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestASignedAddressIsInNoError(t *testing.T) {
	b, faulty := newS3(t, &artifacttest.Memory{}, nil)
	faulty.Close()
	for name, try := range map[string]func() error{
		"put":    func() error { return b.Put(t.Context(), dbtest.Mine, f, strings.NewReader(text)) },
		"ready":  func() error { return b.Ready(t.Context()) },
		"open":   func() error { _, err := b.Open(t.Context(), dbtest.Mine, f.Digest); return err },
		"delete": func() error { return b.Delete(t.Context(), dbtest.Mine, f.Digest) },
	} {
		err := try()
		if !errors.Is(err, artifact.ErrUnreachable) || strings.Contains(err.Error(), "Signature") ||
			strings.Contains(err.Error(), "tester") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEachKeyOfAnS3IsChecked(t *testing.T) {
	for key, change := range map[string]func(*artifact.S3Config){
		"endpoint":     func(c *artifact.S3Config) { c.Endpoint = "http://10.0.0.1:9000" },
		"bucket":       func(c *artifact.S3Config) { c.Bucket = "" },
		"prefix":       func(c *artifact.S3Config) { c.Prefix = "../x" },
		"access_key":   func(c *artifact.S3Config) { c.AccessKey = "" },
		"url_lifetime": func(c *artifact.S3Config) { c.Lifetime *= 1000 },
	} {
		c := artifacttest.Config(t, "http://127.0.0.1:1")
		if got, err := c.Check(); err != nil {
			t.Fatal(got, err)
		}
		change(&c)
		if got, err := c.Check(); got != key || err == nil {
			t.Errorf("%s: %s %v", key, got, err)
		}
	}
	c := artifacttest.Config(t, "http://10.0.0.1:9000")
	c.AllowHTTP = true
	if key, err := c.Check(); err != nil {
		t.Error(key, err)
	}
}
