package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"strconv"
	"strings"
	"time"

	"sovereign/internal/base/secret"
	"sovereign/internal/base/tenant"
)

// Mail is how e-mail is sent. Without a host none is.
type Mail struct {
	Host     string
	Port     int
	Username string
	Password secret.Text
	From     string
	TLS      string      // starttls, implicit or none
	Config   *tls.Config // nil for the system's certificate authorities
}

// The ways to encrypt.
const (
	StartTLS    = "starttls"
	ImplicitTLS = "implicit"
	NoTLS       = "none"
)

// Enabled reports whether e-mail is configured.
func (m *Mail) Enabled() bool { return m.Host != "" }

// Check refuses a configuration that cannot work, or would send a password in the clear.
func (m *Mail) Check() error {
	if !m.Enabled() {
		return nil
	}
	switch {
	case m.Port < 1 || m.Port > 65535:
		return errors.New("port must be 1 to 65535")
	case m.TLS != StartTLS && m.TLS != ImplicitTLS && m.TLS != NoTLS:
		return errors.New("tls must be starttls, implicit or none")
	case !isAddress(m.From):
		return errors.New("from must be an e-mail address such as gateway@example.com")
	case (m.Username == "") != m.Password.Empty():
		return errors.New("username and password go together")
	case m.TLS == NoTLS && m.Username != "":
		return errors.New("a password is not sent without tls")
	}
	return nil
}

// send sends a notice to an address.
func (m *Mail) send(ctx context.Context, to *target, n *Sent, page string) result {
	if !m.Enabled() {
		return result{failure: "e-mail is not configured"}
	}
	client, err := m.dial(ctx)
	if err != nil {
		return result{failure: "the mail server could not be reached"}
	}
	defer func() { _ = client.Close() }()
	if err := m.deliver(client, to.Address, m.message(to, n, page)); err != nil {
		if refusal := (*smtpError)(nil); errors.As(err, &refusal) {
			return result{failure: refusal.Error()}
		}
		return result{failure: "the mail server broke off"}
	}
	return result{}
}

// An smtpError is a step that the mail server refused.
type smtpError struct {
	step string
	err  error
}

// Error names the step. What the server said is the operator's affair.
func (e *smtpError) Error() string { return "the mail server refused " + e.step }

// Unwrap returns what the server said.
func (e *smtpError) Unwrap() error { return e.err }

func (m *Mail) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if m.Config != nil {
		c = m.Config.Clone()
	}
	c.ServerName = m.Host
	return c
}

// dial connects to the mail server; the connection ends with ctx.
func (m *Mail) dial(ctx context.Context) (*smtp.Client, error) {
	dialer := &net.Dialer{}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(m.Host, strconv.Itoa(m.Port)))
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if m.TLS == ImplicitTLS {
		conn = tls.Client(conn, m.tlsConfig())
	}
	client, err := smtp.NewClient(conn, m.Host)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if m.TLS == StartTLS {
		if err := client.StartTLS(m.tlsConfig()); err != nil {
			_ = client.Close()
			return nil, err
		}
	}
	return client, nil
}

// deliver hands one message over. It is delivered when the server has accepted its end.
func (m *Mail) deliver(client *smtp.Client, to string, message []byte) error {
	if m.Username != "" {
		if err := client.Auth(smtp.PlainAuth("", m.Username, m.Password.Reveal(), m.Host)); err != nil {
			return &smtpError{"the password", err}
		}
	}
	if err := client.Mail(m.From); err != nil {
		return &smtpError{"the sender", err}
	}
	if err := client.Rcpt(to); err != nil {
		return &smtpError{"the receiver", err}
	}
	data, err := client.Data()
	if err != nil {
		return &smtpError{"the message", err}
	}
	if _, err := data.Write(message); err != nil {
		return err
	}
	if err := data.Close(); err != nil {
		return &smtpError{"the message", err}
	}
	_ = client.Quit() // the message is accepted, whatever becomes of the connection
	return nil
}

// message is a notice as plain text. No text of a customer reaches a header but the subject, which is encoded.
func (m *Mail) message(to *target, n *Sent, page string) []byte {
	_, host, _ := strings.Cut(m.From, "@")
	var b bytes.Buffer
	for _, h := range [][2]string{
		{"From", "<" + m.From + ">"},
		{"To", "<" + to.Address + ">"},
		{"Subject", mime.QEncoding.Encode("utf-8", printable(n.Title))},
		{"Date", n.At.Std().Format(time.RFC1123Z)},
		{"Message-ID", "<" + n.ID + "." + to.ID + "@" + host + ">"},
		{"Auto-Submitted", "auto-generated"},
		{"MIME-Version", "1.0"},
		{"Content-Type", "text/plain; charset=utf-8"},
		{"Content-Transfer-Encoding", "quoted-printable"},
	} {
		b.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	b.WriteString("\r\n")
	text := quotedprintable.NewWriter(&b)
	_, _ = fmt.Fprintf(text, "%s\r\n\r\n%s\r\n", n.Title, n.Text) // a buffer takes everything
	if page != "" {
		_, _ = fmt.Fprintf(text, "\r\n%s\r\n", page)
	}
	_, _ = fmt.Fprintf(text, "\r\n-- \r\n%s, %s\r\n", n.Kind, n.ID)
	_ = text.Close()
	return b.Bytes()
}

// printable replaces control characters: an encoded word would carry them to the reader.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

// page is the URL of a link, or nothing where this server's own is not known.
func (l *Loop) page(ws tenant.ID, link string) string {
	if l.site == "" || link == "" {
		return ""
	}
	return l.site + "/dashboard/w/" + string(ws) + "/" + link
}
