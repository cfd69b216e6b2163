#include "textflag.h"

// func asciiBlocks(text *byte, n int) int
//
// A byte is ASCII and not NUL when it is greater than zero as a signed number. Every processor of this kind has SSE2.
TEXT ·asciiBlocks(SB), NOSPLIT, $0-24
	MOVQ text+0(FP), SI
	MOVQ n+8(FP), CX
	XORQ AX, AX
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
