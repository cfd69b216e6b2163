//go:build !purego

#include "textflag.h"

// func asciiBlocks(text *byte, n int) int
//
// A byte is ASCII and not NUL when it is greater than zero as a signed number. With AVX2, loop "pair" tests two blocks
// (128 bytes) at a time: VPMINSB reduces them to 32 signed minima, VPCMPGTB and VPMOVMSKB test that all are positive. On
// the first pair that fails, and for a single last block, loop "next" tests one block with SSE2 (PCMPGTB, PAND,
// PMOVMSKB). Every amd64 processor has SSE2.
//
// Invariant of both loops: the first AX blocks are ASCII without NUL, and SI points to the block after them.
TEXT ·asciiBlocks(SB), NOSPLIT, $0-24
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ AX, AX
	CMPB ·hasAVX2(SB), $1
	JNE  narrow
	VPXOR Y0, Y0, Y0

pair:
	LEAQ 2(AX), DX
	CMPQ DX, CX
	JGT  single
	VMOVDQU 0(SI), Y1
	VMOVDQU 64(SI), Y2
	VPMINSB 32(SI), Y1, Y1
	VPMINSB 96(SI), Y2, Y2
	VPMINSB Y2, Y1, Y1
	VPCMPGTB Y0, Y1, Y1
	VPMOVMSKB Y1, BX
	CMPL BX, $-1
	JNE  single
	ADDQ $128, SI
	MOVQ DX, AX
	JMP  pair

single:
	VZEROUPPER

narrow:
	PXOR X0, X0

next:
	CMPQ AX, CX
	JGE  done
	MOVOU 0(SI), X1
	MOVOU 16(SI), X2
	MOVOU 32(SI), X3
	MOVOU 48(SI), X4
	PCMPGTB X0, X1
	PCMPGTB X0, X2
	PCMPGTB X0, X3
	PCMPGTB X0, X4
	PAND X2, X1
	PAND X4, X3
	PAND X3, X1
	PMOVMSKB X1, DX
	CMPL DX, $0xffff
	JNE  done
	ADDQ $64, SI
	INCQ AX
	JMP  next

done:
	MOVQ AX, ret+16(FP)
	RET

// func quoteMasks(text *[blockSize]byte) (quote, slash uint64)
//
// For each 16 bytes, PCMPEQB compares with the quote (X6) and the backslash (X7), and PMOVMSKB takes one bit of each
// byte. AX collects the bits of quotes, BX those of backslashes: four groups of 16 bits, the first lowest.
TEXT ·quoteMasks(SB), NOSPLIT, $0-24
	MOVQ text+0(FP), SI
	MOVQ $0x2222222222222222, AX
	MOVQ AX, X6
	PUNPCKLQDQ X6, X6
	MOVQ $0x5c5c5c5c5c5c5c5c, AX
	MOVQ AX, X7
	PUNPCKLQDQ X7, X7

	MOVOU 0(SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVO X0, X4
	PCMPEQB X6, X4
	PMOVMSKB X4, AX
	PCMPEQB X7, X0
	PMOVMSKB X0, BX

	MOVO X1, X4
	PCMPEQB X6, X4
	PMOVMSKB X4, CX
	SHLQ $16, CX
	ORQ  CX, AX
	PCMPEQB X7, X1
	PMOVMSKB X1, DX
	SHLQ $16, DX
	ORQ  DX, BX

	MOVO X2, X4
	PCMPEQB X6, X4
	PMOVMSKB X4, CX
	SHLQ $32, CX
	ORQ  CX, AX
	PCMPEQB X7, X2
	PMOVMSKB X2, DX
	SHLQ $32, DX
	ORQ  DX, BX

	MOVO X3, X4
	PCMPEQB X6, X4
	PMOVMSKB X4, CX
	SHLQ $48, CX
	ORQ  CX, AX
	PCMPEQB X7, X3
	PMOVMSKB X3, DX
	SHLQ $48, DX
	ORQ  DX, BX

	MOVQ AX, quote+8(FP)
	MOVQ BX, slash+16(FP)
	RET

// func quotelessBlocks(text *byte, n int) int
//
// VPCMPEQB compares 128 bytes with quotes, VPOR joins the results, and VPTEST sets ZF when none matched.
//
// Invariant: the first AX blocks have no quote, and SI points to the block after them. AX is even.
TEXT ·quotelessBlocks(SB), NOSPLIT, $0-24
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ AX, AX
	MOVQ $0x2222222222222222, BX
	MOVQ BX, X0
	VPBROADCASTQ X0, Y0

pair:
	LEAQ 2(AX), DX
	CMPQ DX, CX
	JGT  done
	VPCMPEQB 0(SI), Y0, Y1
	VPCMPEQB 32(SI), Y0, Y2
	VPCMPEQB 64(SI), Y0, Y3
	VPCMPEQB 96(SI), Y0, Y4
	VPOR Y1, Y2, Y1
	VPOR Y3, Y4, Y3
	VPOR Y1, Y3, Y1
	VPTEST Y1, Y1
	JNE  done
	ADDQ $128, SI
	MOVQ DX, AX
	JMP  pair

done:
	VZEROUPPER
	MOVQ AX, ret+16(FP)
	RET

// func unquotedASCIIBlocks(text *byte, n int) int
//
// For a byte c, the signed minimum of c and c XOR '"' (VPXOR, VPMINSB) is greater than zero exactly when c is ASCII, not
// NUL and not a quote. VPMINSB reduces 128 bytes to 32 minima; VPCMPGTB and VPMOVMSKB test that all are positive.
//
// Invariant: the first AX blocks hold only such bytes, and SI points to the block after them. AX is even.
TEXT ·unquotedASCIIBlocks(SB), NOSPLIT, $0-24
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ AX, AX
	MOVQ $0x2222222222222222, BX
	MOVQ BX, X0
	VPBROADCASTQ X0, Y0
	VPXOR Y15, Y15, Y15

pair:
	LEAQ 2(AX), DX
	CMPQ DX, CX
	JGT  done
	VMOVDQU 0(SI), Y1
	VMOVDQU 32(SI), Y2
	VMOVDQU 64(SI), Y3
	VMOVDQU 96(SI), Y4
	VPXOR Y1, Y0, Y5
	VPXOR Y2, Y0, Y6
	VPXOR Y3, Y0, Y7
	VPXOR Y4, Y0, Y8
	VPMINSB Y1, Y5, Y5
	VPMINSB Y2, Y6, Y6
	VPMINSB Y3, Y7, Y7
	VPMINSB Y4, Y8, Y8
	VPMINSB Y5, Y6, Y5
	VPMINSB Y7, Y8, Y7
	VPMINSB Y5, Y7, Y5
	VPCMPGTB Y15, Y5, Y5
	VPMOVMSKB Y5, BX
	CMPL BX, $-1
	JNE  done
	ADDQ $128, SI
	MOVQ DX, AX
	JMP  pair

done:
	VZEROUPPER
	MOVQ AX, ret+16(FP)
	RET

// func utf8Blocks(text *byte, n int, tables *[3][16]byte) bool
//
// The algorithm of Keiser and Lemire (see utf8Tables), 32 bytes at a time. VPERM2I128 and VPALIGNR give the bytes one,
// two and three positions earlier. VPSHUFB looks up the high and low nibble of the previous byte and the high nibble of
// this byte; VPAND of the three results gives the errors of the pair. Two continuation bytes in a row appear there as
// the high bit. They are valid when the byte two positions earlier leads three or four bytes, or the byte three positions
// earlier leads four: VPSUBUSB leaves the high bit set exactly for those. The two high bits must agree, hence VPXOR.
//
// Invariant: Y0 holds the previous 32 bytes (zero at first), and Y7 is zero exactly when no error and no NUL was found.
TEXT ·utf8Blocks(SB), NOSPLIT, $0-25
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ tables+16(FP), DI
	ADDQ CX, CX
	VBROADCASTI128 0(DI), Y8
	VBROADCASTI128 16(DI), Y9
	VBROADCASTI128 32(DI), Y10
	MOVQ $0x0f0f0f0f0f0f0f0f, AX
	VMOVQ AX, X11
	VPBROADCASTQ X11, Y11
	MOVQ $0x6060606060606060, AX // E0 - 80: bytes from E0 on keep the high bit
	VMOVQ AX, X12
	VPBROADCASTQ X12, Y12
	MOVQ $0x7070707070707070, AX // F0 - 80: bytes from F0 on keep the high bit
	VMOVQ AX, X13
	VPBROADCASTQ X13, Y13
	MOVQ $0x8080808080808080, AX
	VMOVQ AX, X14
	VPBROADCASTQ X14, Y14
	VPXOR Y15, Y15, Y15
	VPXOR Y0, Y0, Y0 // the previous 32 bytes
	VPXOR Y7, Y7, Y7 // errors

half:
	TESTQ CX, CX
	JEQ  done
	DECQ CX
	VMOVDQU 0(SI), Y1
	ADDQ $32, SI
	VPCMPEQB Y15, Y1, Y2 // NUL
	VPOR Y2, Y7, Y7
	VPERM2I128 $0x21, Y1, Y0, Y3 // the upper half of the previous bytes, the lower half of these
	VPALIGNR $15, Y3, Y1, Y4 // the byte before each
	VPSRLW $4, Y4, Y5
	VPAND Y11, Y5, Y5
	VPSHUFB Y5, Y8, Y5
	VPAND Y11, Y4, Y4
	VPSHUFB Y4, Y9, Y4
	VPAND Y4, Y5, Y5
	VPSRLW $4, Y1, Y4
	VPAND Y11, Y4, Y4
	VPSHUFB Y4, Y10, Y4
	VPAND Y4, Y5, Y5
	VPALIGNR $14, Y3, Y1, Y2 // two bytes before each
	VPSUBUSB Y12, Y2, Y2
	VPALIGNR $13, Y3, Y1, Y4 // three bytes before each
	VPSUBUSB Y13, Y4, Y4
	VPOR Y2, Y4, Y4
	VPAND Y14, Y4, Y4
	VPXOR Y4, Y5, Y5
	VPOR Y5, Y7, Y7
	VMOVDQA Y1, Y0
	JMP  half

done:
	VPTEST Y7, Y7
	SETEQ ret+24(FP)
	VZEROUPPER
	RET
