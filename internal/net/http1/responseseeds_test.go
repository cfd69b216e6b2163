package http1

import "strings"

const chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

// responseSeeds are responses, valid and malformed, from which the fuzzing starts.
var responseSeeds = []string{
	// Valid ones, in each framing.
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200\r\ncontent-length:5 \r\nCONTENT-TYPE:\tapplication/json\t\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nConnection: Keep-Alive, Close\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nRetry-After-Ms: 7000\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Type: a\r\nContent-Type: b\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Type:\r\nContent-Type: b\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	chunked + "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
	chunked + "5;a=b;c=\"d\"\r\nhello\r\n00006\r\n world\r\n000;last\r\n\r\n",
	chunked + "a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\nExpires: never\r\nX-Sum: 1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
	chunked + "0\r\n\r\n",
	chunked + "05\r\nhello\r\n0\r\n\r\n",
	chunked + strings.Repeat("1\r\nx\r\n", 300) + "0\r\n\r\n",
	chunked + "2000\r\n" + strings.Repeat("y", 0x2000) + "\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("z", 9000),
	"HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("x", 6000) + "\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 \xff\r\nX: \x80\r\nContent-Length: 2\r\n\r\nok",

	// Truncated.
	"", "H", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r", chunked,
	chunked + "5\r\nhell", chunked + "5\r\nhello", chunked + "5\r\nhello\r\n0\r\n", chunked + "0\r\nA: b\r\n", chunked + "5",

	// Lengths.
	"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello!",
	"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\nhellohello",
	"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length\x00: 5\r\n\r\nhello",

	// Lengths and chunks.
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chun\u212aed\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",

	// Chunks.
	chunked + "5 \r\nhello\r\n0\r\n\r\n", chunked + "5 ;x\r\nhello\r\n0\r\n\r\n", chunked + "\t5\r\nhello\r\n0\r\n\r\n",
	chunked + "5\nhello\r\n0\r\n\r\n", chunked + "5\r\nhello\n0\r\n\r\n", chunked + "5\r\nhello0\r\n\r\n", chunked + "5\r\nhello!\r\n0\r\n\r\n",
	chunked + "0x5\r\nhello\r\n0\r\n\r\n", chunked + "-5\r\nhello\r\n0\r\n\r\n", chunked + "+5\r\nhello\r\n0\r\n\r\n", chunked + "\r\nhello\r\n0\r\n\r\n",
	chunked + ";x\r\n\r\n", chunked + "5\r\nhello\r\n;\r\n\r\n", chunked + "\r\n\r\n",
	chunked + ";x\r\nhello\r\n0\r\n\r\n", chunked + "5;\x01\r\nhello\r\n0\r\n\r\n", chunked + "5;\n\r\nhello\r\n0\r\n\r\n",
	chunked + "fffffffffffffff\r\nhello", chunked + "ffffffffffffffff\r\nhello", chunked + "10000000000000005\r\nhello\r\n0\r\n\r\n",
	chunked + "000000000000005\r\nhello\r\n0\r\n\r\n", chunked + "0000000000000005\r\nhello\r\n0\r\n\r\n", chunked + "8000000000000000\r\nhello",
	chunked + "5;" + strings.Repeat("x", 250) + "\r\nhello\r\n0\r\n\r\n",
	chunked + "5;" + strings.Repeat("x", 300) + "\r\nhello\r\n0\r\n\r\n",
	chunked + strings.Repeat("1;"+strings.Repeat("x", 240)+"\r\ny\r\n", 90) + "0\r\n\r\n",
	chunked + "0\r\nContent-Length: 5\r\n\r\n", chunked + "0\r\nTransfer-Encoding: gzip\r\n\r\n", chunked + "0\r\n A: b\r\n\r\n", chunked + "0\r\nA\r\n\r\n",
	chunked + "0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 90)+"\r\n", 60) + "\r\n",
	chunked + "0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 90)+"\r\n", 100) + "\r\n",
	"HTTP/1.1 200 OK\r\nTrailer: Content-Length\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",

	// Heads.
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "HTTP/1.1 200 OK\r\nContent-Length: 5\n\r\nhello", "\r\nHTTP/1.1 200 OK\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n", "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\x00c\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
	"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 O\x01K\r\nContent-Length: 0\r\n\r\n", "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 099 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 +20 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 2:0 OK\r\n\r\n", "HTTP/1.1 2a0 OK\r\n\r\n", "HTTP/1.1 /00 OK\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "http/1.1 200 OK\r\n\r\n", "HTTP/11 200 OK\r\n\r\n", "HTTP/1.1\t200 OK\r\n\r\n",
	"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 8) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 9) + "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: "+strings.Repeat("y", 90)+"\r\n", 100) + "Content-Length: 0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: a\x7f\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x15\x03\x01\x00\x02\x02\x0a", "\x00\x00\x12\x04\x00\x00\x00\x00\x00", "<html>", "SSH-2.0-x\r\n",
}
