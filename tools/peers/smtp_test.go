package peers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"sovereign/internal/base/secret"
	"sovereign/internal/domain/notify"
	"sovereign/internal/store/notice"
)

// A mailbox is a mail server that keeps what arrives.
type mailbox struct {
	arrived  chan letter
	password string // that it asks for; empty for none
}

type letter struct {
	from string
	to   []string
	text string
}

func (m *mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return &delivery{box: m}, nil }

type delivery struct {
	box    *mailbox
	letter letter
	known  bool
}

func (d *delivery) AuthMechanisms() []string { return []string{sasl.Plain} }

func (d *delivery) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, username, password string) error {
		if username != "gateway" || password != d.box.password {
			return errors.New("wrong")
		}
		d.known = true
		return nil
	}), nil
}

func (d *delivery) Mail(from string, _ *smtp.MailOptions) error {
	if d.box.password != "" && !d.known {
		return smtp.ErrAuthRequired
	}
	d.letter.from = from
	return nil
}

func (d *delivery) Rcpt(to string, _ *smtp.RcptOptions) error {
	d.letter.to = append(d.letter.to, to)
	return nil
}

func (d *delivery) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	d.letter.text = string(text)
	d.box.arrived <- d.letter
	return err
}

func (d *delivery) Reset()        {}
func (d *delivery) Logout() error { return nil }

// certificate is a certificate of localhost, and a pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// serve starts a mail server, and returns how to reach it.
func serve(t *testing.T, box *mailbox, encryption string) notify.Mail {
	t.Helper()
	own, pool := certificate(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(box)
	server.Domain, server.TLSConfig = "mail.example.com", &tls.Config{Certificates: []tls.Certificate{own}}
	port := listener.Addr().(*net.TCPAddr).Port
	if encryption == notify.ImplicitTLS {
		listener = tls.NewListener(listener, server.TLSConfig)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return notify.Mail{
		Host: "127.0.0.1", Port: port, From: "gateway@example.com", TLS: encryption,
		Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
}

func TestAMailServerGetsAPlainLetterOverEveryEncryption(t *testing.T) {
	const title = "Käufer\r\nBcc: victim@example.com"
	for _, encryption := range []string{notify.StartTLS, notify.ImplicitTLS, notify.NoTLS} {
		t.Run(encryption, func(t *testing.T) {
			box := &mailbox{arrived: make(chan letter, 10)}
			if encryption != notify.NoTLS {
				box.password = "a password"
			}
			to := serve(t, box, encryption)
			if box.password != "" {
				to.Username, to.Password = "gateway", secret.New(box.password)
			}
			if err := to.Check(); err != nil {
				t.Fatal(err)
			}
			deliver(t, to, notify.NewChannel{
				Type: notify.Email, Address: "ops@example.com", Kinds: []notice.Kind{notice.JobEnded},
			}, notice.Notice{
				Kind: notice.JobEnded, Subject: "eval_1", Title: title, Link: "evals",
				Text: "<script>alert(1)</script>\r\n.\r\nQUIT\r\nline of a customer " + strings.Repeat("x", 2000),
			})
			select {
			case got := <-box.arrived:
				read(t, got)
			case <-time.After(patience):
				t.Fatal("nothing arrived")
			}
		})
	}
}

// read checks a letter: one receiver, no header that a customer wrote, the whole text.
func read(t *testing.T, got letter) {
	t.Helper()
	if got.from != "gateway@example.com" || len(got.to) != 1 || got.to[0] != "ops@example.com" {
		t.Errorf("from %s to %v", got.from, got.to)
	}
	message, err := mail.ReadMessage(strings.NewReader(got.text))
	if err != nil {
		t.Fatal(err)
	}
	for name := range message.Header {
		switch name {
		case "From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "Mime-Version", "Content-Type", "Content-Transfer-Encoding":
		default:
			t.Errorf("the header has %s: %v", name, message.Header[name])
		}
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
	if err != nil || subject != "Käufer  Bcc: victim@example.com" {
		t.Errorf("the subject is %q %v", subject, err)
	}
	if kind := message.Header.Get("Content-Type"); kind != "text/plain; charset=utf-8" {
		t.Errorf("it is %s", kind)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(message.Body))
	if err != nil || !strings.Contains(string(text), "<script>alert(1)</script>") || !strings.Contains(string(text), strings.Repeat("x", 2000)) ||
		!strings.Contains(string(text), "\n.\r\nQUIT\r\n") || !strings.Contains(string(text), "https://gateway.example.com/dashboard/w/"+string(workspace)+"/evals") {
		t.Errorf("the text is %q %v", text, err)
	}
}
