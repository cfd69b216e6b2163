package finetune

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"sovereign/internal/base/fault"
	"sovereign/internal/base/limit"
)

func TestFewFilesAreUploadedAtOnce(t *testing.T) {
	h := &handler{uploads: limit.NewBudget(0)}
	err := h.serveUpload(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody))
	if err == nil || fault.From(err).Kind != fault.RateLimited || fault.From(err).RetryAfter == 0 {
		t.Errorf("want 429, got %v", err)
	}
}
