package train

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/tenant"
	"sovereign/internal/plane/edge"
	"sovereign/internal/store/api"
	"sovereign/internal/store/artifact"
)

// workerRoutes are the protocol of workers, below /workers/v1.
func (s *Store) workerRoutes() []api.Route {
	return []api.Route{
		api.Raw[Info, Given]("/lease", api.Worker, s.serveLease,
			"Ask for work. It answers when there is some, or with null after 30 seconds"),
		api.Post("/runs/{id}/heartbeat", api.Worker, s.heartbeat, "Say that the run goes on, and hear what to do"),
		api.Post(
			"/runs/{id}/events", api.Worker, s.record, "Tell what happened: each number of an attempt is kept once",
		),
		api.Post("/runs/{id}/uploads", api.Worker, s.offer, "Ask where the files of a checkpoint are sent to"),
		api.Raw[uploading, api.None]("/runs/{id}/files/{sha256}", api.Worker, s.serveUpload, "Send a file"),
		api.Get("/runs/{id}/files/{sha256}", api.Worker, s.download, "Fetch a file that the run reads",
			api.Long, api.Produces("application/octet-stream")),
		api.Post("/runs/{id}/checkpoints", api.Worker, s.save, "Commit a checkpoint whose files are all sent"),
		api.Post("/runs/{id}/done", api.Worker, s.done, "End the attempt"),
	}
}

// A Given is the answer to a worker that asks for work.
type Given struct {
	Lease *Lease `json:"lease" doc:"Null when there is no work now: ask again"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Given) SchemaName() string { return "WorkerWork" }

// leaseBody bounds what a worker says of itself.
const leaseBody = 1 << 20

func (s *Store) serveLease(w http.ResponseWriter, r *http.Request) error {
	edge.SkipAccessLog(r.Context())
	body, err := s.Bounds.Read(r, leaseBody)
	if err != nil {
		return err
	}
	defer body.Release()
	var info Info
	if err := api.Decode(body.Bytes, &info); err != nil {
		return err
	}
	if info.GPUCount < 1 {
		return fault.Invalid("gpu_count", "must be at least 1")
	}
	lease, err := s.Await(r.Context(), workerOf(edge.Caller(r.Context())), info)
	if err != nil {
		return err
	}
	text, err := json.Marshal(Given{lease})
	if err != nil {
		return fmt.Errorf("write a lease: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // the lease of a worker that has gone runs out
	return nil
}

func workerOf(c tenant.Caller) Worker {
	if c.Worker == nil {
		return Worker{}
	}
	return Worker{ID: c.Worker.ID, Name: c.Worker.Name, Workspace: c.Worker.Workspace}
}

type beating struct {
	LeaseRef
	Body Beat
}

func (s *Store) heartbeat(ctx context.Context, c tenant.Caller, in beating) (Order, error) {
	return s.Heartbeat(ctx, workerOf(c), in.LeaseRef, in.Body)
}

type recording struct {
	LeaseRef
	Body struct {
		Events []Report `json:"events" maxItems:"500"`
	}
}

// Recorded is the answer to a worker's events.
type Recorded struct {
	Kept int `json:"kept" doc:"How many were new"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Recorded) SchemaName() string { return "WorkerEventsKept" }

func (s *Store) record(ctx context.Context, c tenant.Caller, in recording) (Recorded, error) {
	kept, err := s.Record(ctx, workerOf(c), in.LeaseRef, in.Body.Events)
	return Recorded{kept}, err
}

type offering struct {
	LeaseRef
	Body struct {
		Files []artifact.File `json:"files" minItems:"1" maxItems:"2000"`
	}
}

// Uploads is where the files of a checkpoint are sent to, in the order in which they were asked for.
type Uploads struct {
	Files []Upload `json:"files" nullable:"false"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Uploads) SchemaName() string { return "WorkerUploads" }

func (s *Store) offer(ctx context.Context, c tenant.Caller, in offering) (Uploads, error) {
	all, err := s.Offer(ctx, workerOf(c), in.LeaseRef, in.Body.Files)
	return Uploads{all}, err
}

type uploading struct {
	LeaseRef
	Digest string `path:"sha256"`
}

// serveUpload stores the bytes of a file while they come. The length is the header's.
func (s *Store) serveUpload(w http.ResponseWriter, r *http.Request) error {
	h := LeaseRef{RunID: r.PathValue("id"), Fence: r.URL.Query().Get("fence")}
	h.Attempt, _ = strconv.ParseInt(r.URL.Query().Get("attempt"), 10, 64) // 0 is no attempt
	if r.ContentLength < 0 {
		return fault.InvalidParameter.New("send the length of the file in Content-Length")
	}
	ws, err := s.workspaceOf(r.Context(), workerOf(edge.Caller(r.Context())), h)
	if err != nil {
		return err
	}
	file := artifact.File{Digest: artifact.Digest(r.PathValue("sha256")), Bytes: r.ContentLength}
	if err := s.Artifacts.Put(r.Context(), ws, file, s.Bounds.Stream(r)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Store) download(ctx context.Context, c tenant.Caller, in uploading) (api.Stream, error) {
	ws, err := s.workspaceOf(ctx, workerOf(c), in.LeaseRef)
	if err != nil {
		return api.Stream{}, err
	}
	from, err := s.Artifacts.Open(ctx, ws, artifact.Digest(in.Digest))
	if err != nil {
		return api.Stream{}, err
	}
	return api.Stream{ContentType: "application/octet-stream", Filename: in.Digest, Write: func(w io.Writer) error {
		defer func() { _ = from.Close() }() // it was read
		_, err := io.Copy(w, from)
		return err
	}}, nil
}

type saving struct {
	LeaseRef
	Body Saved
}

// A Committed names a checkpoint that was committed.
type Committed struct {
	ID     string          `json:"id"`
	SHA256 artifact.Digest `json:"sha256" doc:"Of its manifest"`
}

// SchemaName is the type's name in the OpenAPI document.
func (Committed) SchemaName() string { return "WorkerCheckpointKept" }

func (s *Store) save(ctx context.Context, c tenant.Caller, in saving) (Committed, error) {
	made, err := s.Save(ctx, workerOf(c), in.LeaseRef, in.Body)
	return Committed{made.ID, made.Digest}, err
}

type finishing struct {
	LeaseRef
	Body Done
}

func (s *Store) done(ctx context.Context, c tenant.Caller, in finishing) (api.None, error) {
	return api.None{}, s.Finish(ctx, workerOf(c), in.LeaseRef, in.Body)
}
