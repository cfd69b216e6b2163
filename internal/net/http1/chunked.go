package http1

import (
	"fmt"
	"io"
)

// dechunk removes the chunk lines from what has arrived, in place, and returns the data of all chunks as one piece. It
// blocks only when there is no data to return.
func (b *Body) dechunk() ([]byte, error) {
	cc := b.conn
	start := cc.start
	end := start // buffer[start:end] is the data; end never passes cc.start
	for {
		if b.remaining > 0 {
			n := int(min(int64(cc.end-cc.start), b.remaining))
			end += copy(cc.buffer[end:], cc.buffer[cc.start:cc.start+n])
			cc.start += n
			b.remaining -= int64(n)
		}
		if cc.start == cc.end || b.remaining > 0 {
			return cc.buffer[start:end], nil
		}
		if !b.skipChunkLine() {
			if end > start && !b.chunkLineComplete() {
				return cc.buffer[start:end], nil
			}
			if end == start {
				start, end = cc.start, cc.start // reading a line may move the unread bytes to the front
			}
			last, err := b.readChunkLine()
			if err == nil && last {
				err = b.readTrailers()
			}
			if err != nil {
				return cc.buffer[start:end], err
			}
		}
		if end == start {
			start, end = cc.start, cc.start
		}
	}
}

// fastDigits is the most digits of a chunk size that skipChunkLine reads.
const fastDigits = 4

// skipChunkLine is the fast path of readChunkLine. It takes the common form alone, if that has arrived whole: the CR LF
// after a chunk, a size of up to four digits other than zero, and CR LF. It leaves everything else to readChunkLine.
func (b *Body) skipChunkLine() bool {
	cc := b.conn
	text := cc.buffer[cc.start:cc.end]
	at := 0
	if b.inChunk {
		if len(text) < 2 || text[0] != '\r' || text[1] != '\n' {
			return false
		}
		at = 2
	}
	var n int64
	for i := at; i+1 < len(text) && i <= at+fastDigits; i++ {
		if text[i] == '\r' {
			if n == 0 || text[i+1] != '\n' {
				return false
			}
			cc.start += i + 2
			b.remaining, b.inChunk = n, true
			return true
		}
		d, ok := hexDigit(text[i])
		if !ok {
			return false
		}
		n = n<<4 | int64(d)
	}
	return false
}

// chunkLineComplete reports whether the line between two chunks has arrived whole. It is false for a size that begins
// with zero: that may be the last chunk, whose trailers have to be waited for, so the data before it is returned first.
func (b *Body) chunkLineComplete() bool {
	unread := b.conn.buffer[b.conn.start:b.conn.end]
	at := 0
	if b.inChunk {
		at = 2
	}
	if len(unread) <= at || unread[at] == '0' {
		return false
	}
	for _, c := range unread[at:] {
		if c == '\n' {
			return true
		}
	}
	return false
}

// maxChunkLine bounds the line before a chunk: the size and extensions.
const maxChunkLine = 256

// readChunkLine reads the CR LF after a chunk, if one was read, and the size of the next. It returns true for the last
// chunk.
func (b *Body) readChunkLine() (last bool, err error) {
	cc := b.conn
	if b.inChunk {
		line, err := cc.readLine(len("\r\n"))
		if err != nil {
			return false, err
		}
		if len(line) > 0 {
			return false, fmt.Errorf("%w: a chunk that is longer than it says", ErrMalformed)
		}
		b.inChunk = false
	}
	line, err := cc.readLine(maxChunkLine)
	if err != nil {
		return false, err
	}
	if b.remaining, err = parseChunkSize(line); err != nil {
		return false, err
	}
	b.inChunk = b.remaining > 0
	return b.remaining == 0, nil
}

// maxSizeDigits is the most hexadecimal digits of a chunk size that fits an int64.
const maxSizeDigits = 15

// parseChunkSize parses hexadecimal digits, followed by nothing or by an extension, which is ignored.
func parseChunkSize(line []byte) (n int64, err error) {
	digits := 0
	for _, c := range line {
		digit, ok := hexDigit(c)
		if c == ';' && digits > 0 && noControls(line) {
			return n, nil
		}
		if !ok {
			return 0, fmt.Errorf("%w: a chunk without a size", ErrMalformed)
		}
		if digits++; digits > maxSizeDigits {
			return 0, fmt.Errorf("%w: a chunk of too many bytes", ErrMalformed)
		}
		n = n<<4 | int64(digit)
	}
	if digits == 0 {
		return 0, fmt.Errorf("%w: a chunk without a size", ErrMalformed)
	}
	return n, nil
}

func hexDigit(c byte) (digit byte, ok bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}

// readTrailers validates and drops the fields after the last chunk. It returns io.EOF, the end of the body.
func (b *Body) readTrailers() error {
	for left := b.client.config.MaxHead; ; {
		line, err := b.conn.readLine(left)
		switch {
		case err != nil:
			return err
		case len(line) == 0:
			return io.EOF
		}
		left -= len(line) + len("\r\n")
		if err := new(responseHead).readField(line); err != nil {
			return err
		}
	}
}
