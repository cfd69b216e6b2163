package apitest

import (
	"crypto/rand"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sovereign/internal/base/clock"
	"sovereign/internal/base/id"
	"sovereign/internal/base/tenant"
	"sovereign/internal/live"
	"sovereign/internal/plane/edge"
)

// NewSession puts a session of a user in force, and returns its cookie.
func NewSession(t testing.TB, in *live.Sessions, user tenant.UserID) (cookie string, session tenant.SessionID) {
	t.Helper()
	cookie, digest := NewCookie()
	session = tenant.SessionID(id.New("ses"))
	in.Put(digest, live.NewSession(session, user, clock.Now(), clock.Now().Add(time.Hour), time.Hour))
	return cookie, session
}

// NewCookie returns a new cookie, and the digest of its secret.
func NewCookie() (cookie string, digest live.SessionDigest) {
	var random [32]byte
	_, _ = rand.Read(random[:])
	secret, digest := edge.NewSecret(random)
	cookie, _, _ = strings.Cut(edge.SessionCookie(secret, time.Hour), ";")
	return cookie, digest
}

// Cookies are sessions that a Client's server knows: of an owner, an admin and a member of the workspace, of an admin
// of the other workspace, and of a person who is no member of any.
type Cookies struct {
	Owner, Admin, Member, Other, Nobody string
}

// The users of a Client's cookies. Their rows in users are the test's to add, where a route needs them.
const (
	OwnerUser  tenant.UserID = "usr_owner"
	AdminUser  tenant.UserID = "usr_admin"
	MemberUser tenant.UserID = "usr_member"
	OtherUser  tenant.UserID = "usr_other"
	NobodyUser tenant.UserID = "usr_nobody"
)

func newCookies(t *testing.T, dir *live.Directory, in *live.Sessions, mine, theirs tenant.ID) Cookies {
	t.Helper()
	mint := func(user tenant.UserID, ws tenant.ID, role tenant.Role) string {
		if role != "" {
			dir.PutMember(live.Member{Workspace: ws, User: user}, role)
		}
		cookie, _ := NewSession(t, in, user)
		return cookie
	}
	return Cookies{
		Owner: mint(OwnerUser, mine, tenant.Owner), Admin: mint(AdminUser, mine, tenant.Admin),
		Member: mint(MemberUser, mine, tenant.Member), Other: mint(OtherUser, theirs, tenant.Admin),
		Nobody: mint(NobodyUser, "", ""),
	}
}

// InWorkspace returns the path of a route of the dashboard in the client's workspace: /queues is
// /dashboard/api/w/ws_1/queues.
func (c Client) InWorkspace(path string) string {
	return "/dashboard/api/w/" + string(c.workspace) + path
}

// OnCookie returns the path of a route of /v1 on the dashboard's mount: /logs is /dashboard/v1/ws_1/logs.
func (c Client) OnCookie(path string) string { return "/dashboard/v1/" + string(c.workspace) + path }

// DoSession sends a request with a session's cookie, as the dashboard's page would; headers are names and values in
// turn.
func (c Client) DoSession(
	t *testing.T, cookie, method, path, body string, headers ...string,
) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	request.Host, request.RemoteAddr = "localhost", "127.0.0.1:1"
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	request.Header.Set("Origin", "http://localhost")
	if cookie != "" {
		request.Header.Set("Cookie", cookie)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	c.handler.ServeHTTP(recorder, request)
	return recorder
}

// AskSession returns the status and the body of the answer to a session, after shape.
func (c Client) AskSession(t *testing.T, cookie, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	recorder := c.DoSession(t, cookie, method, path, body, headers...)
	text, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return recorder.Code, c.shape(strings.TrimSpace(string(text)))
}

// WantsSession fails the test unless the answer to a session is this one.
func (c Client) WantsSession(t *testing.T, cookie, method, path, body string, status int, answer string) {
	t.Helper()
	if got, text := c.AskSession(t, cookie, method, path, body); got != status || text != answer {
		t.Errorf("%s %s %s: want %d\n%s\ngot %d\n%s", method, path, body, status, answer, got, text)
	}
}

// RefusesSession fails the test unless the answer to a session has that status.
func (c Client) RefusesSession(t *testing.T, cookie, method, path, body string, status int) {
	t.Helper()
	if got, text := c.AskSession(t, cookie, method, path, body); got != status {
		t.Errorf("%s %s %s: want %d, got %d %s", method, path, body, status, got, text)
	}
}
