package finetune

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"strings"
	"unicode"
	"unicode/utf8"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/fault"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/store/artifact"
	"sovereign/internal/store/audit"
	"sovereign/internal/store/db"
	"sovereign/internal/store/quota"
	"sovereign/internal/text/redact"
)

// readUpload stores the file of a multipart form, as OpenAI's clients send it: purpose, and file.
func (s *Store) readUpload(ctx context.Context, ws tenant.ID, by tenant.Actor, form *multipart.Reader) (File, error) {
	for {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return File{}, fault.Invalid("file", "is missing from the form")
		case err != nil:
			return File{}, fault.InvalidBody.Because(err, "the form cannot be read")
		}
		switch part.FormName() {
		case "purpose":
			purpose, err := io.ReadAll(io.LimitReader(part, 64))
			if err != nil || string(purpose) != "fine-tune" {
				return File{}, fault.Invalid("purpose", "must be fine-tune")
			}
		case "file":
			return s.AddFile(ctx, ws, by, part.FileName(), part)
		default:
			return File{}, fault.Invalid(part.FormName(), "is not a part of this form: send purpose and file")
		}
	}
}

// AddFile checks and stores a file of examples. What breaks a rule is named with the numbers of its lines.
func (s *Store) AddFile(ctx context.Context, ws tenant.ID, by tenant.Actor, name string, from io.Reader) (File, error) {
	name = redact.String(strings.Map(visible, name))
	if n := utf8.RuneCountInString(name); n < 1 || n > 200 {
		return File{}, fault.Invalid("file", "must have a name of 1 to 200 characters")
	}
	stored, sum, err := s.stage(ctx, ws, from)
	if err != nil {
		return File{}, err
	}
	made := File{
		ID: id.New("file"), Object: "file", Name: name, Purpose: "fine-tune", Format: sum.Format, Bytes: stored.Bytes,
		Rows: sum.Rows, Digest: string(stored.Digest), CreatedAt: clock.Now(),
	}
	_, err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := s.insertFile(ctx, tx, ws, by, made, stored); err != nil {
			return err
		}
		return quota.Check(ctx, tx.In(ws), quota.TrainingFiles, 1)
	})
	return made, err
}

func visible(r rune) rune {
	if unicode.IsGraphic(r) {
		return r
	}
	return -1
}

// stage stores examples as an artifact while it checks them.
func (s *Store) stage(ctx context.Context, ws tenant.ID, from io.Reader) (artifact.File, Summary, error) {
	read, write := io.Pipe()
	type result struct {
		sum Summary
		err error
	}
	checked := make(chan result, 1)
	go func() {
		sum, err := readLines(read)
		_ = read.CloseWithError(err) // the copy ends with the first fault
		checked <- result{sum, err}
	}()
	stored, err := s.Artifacts.Add(ctx, ws, io.TeeReader(from, write), maxFile)
	_ = write.CloseWithError(err)
	found := <-checked
	if found.err != nil {
		return stored, found.sum, found.err
	}
	return stored, found.sum, err
}

const fileColumns = `id, name, format, bytes, row_count, digest, created_at FROM training_files WHERE workspace_id = $1`

// File reads what is known of a file.
func (s *Store) File(ctx context.Context, in db.Scoped, fileID string) (File, error) {
	f, err := db.Maybe[File](ctx, in, `SELECT `+fileColumns+` AND id = $2`, fileID)
	switch {
	case err != nil:
		return File{}, fmt.Errorf("find a training file: %w", err)
	case f == nil:
		return File{}, fault.NotFound("training file", fileID)
	}
	f.Object, f.Purpose = "file", "fine-tune"
	return *f, nil
}

// Files lists files, the newest first.
func (s *Store) Files(ctx context.Context, ws tenant.ID, limit, offset int) ([]File, error) {
	all, err := db.Query[File](ctx, s.DB.In(ws), `SELECT `+fileColumns+` ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3`,
		limit, offset)
	if err != nil {
		return nil, fmt.Errorf("list training files: %w", err)
	}
	for i := range all {
		all[i].Object, all[i].Purpose = "file", "fine-tune"
	}
	return all, nil
}

// Content reads the bytes of a file.
func (s *Store) Content(ctx context.Context, ws tenant.ID, fileID string) (File, io.ReadCloser, error) {
	f, err := s.File(ctx, s.DB.In(ws), fileID)
	if err != nil {
		return File{}, nil, err
	}
	from, err := s.Artifacts.Open(ctx, ws, artifact.Digest(f.Digest))
	return f, from, err
}

// DeleteFile deletes a file. Jobs that were made of it keep what they train on until they have ended.
func (s *Store) DeleteFile(ctx context.Context, ws tenant.ID, by tenant.Actor, fileID string) error {
	_, err := s.DB.Tx(ctx, func(tx *db.Tx) error {
		before, err := s.File(ctx, tx.In(ws), fileID)
		if err != nil {
			return err
		}
		if _, err := db.Exec(
			ctx, tx.In(ws), `DELETE FROM training_files WHERE workspace_id = $1 AND id = $2`, fileID,
		); err != nil {
			return fmt.Errorf("delete a training file: %w", err)
		}
		if err := s.Artifacts.Release(ctx, tx, ws, fileID); err != nil {
			return err
		}
		return audit.Record(ctx, tx, ws, by, "training_file.delete", fileID, before, nil)
	})
	return err
}
