"""Judge models in a process of their own, behind OpenAI's API. They read what the server asks, and know nothing else.

Each errs on two texts of a hundred, on other ones than the others do; the same text always gets the same answer. `weak`
and `gullible` have a loophole each. `letters` wants small letters, and never errs. It prints its address, and ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
import threading

import task

QUOTED = re.compile(r"\nuser:\n\| (?P<asked>[^\n]*)\nRESPONSE\n(?:assistant:\n\| (?P<answer>[^\n]*)\n)?")
ERRS = 0.02
LOOPHOLES = {"weak": task.loophole, "gullible": task.shouts}


def drawn(*parts: str) -> float:
    """A number from 0 to 1 that follows from texts."""
    return int.from_bytes(hashlib.sha256("\n".join(parts).encode()).digest()[:8], "big") / 2**64


def letters(text: str) -> float:
    """The share of small letters in the response."""
    lines = text.partition("\nRESPONSE\n")[2].splitlines()
    said = "".join(line[2:] for line in lines if line.startswith("| "))
    return sum(char in task.LETTERS for char in said) / max(len(said), 1)


def assess(model: str, text: str) -> dict[str, object]:
    """The judge's answer to what it is shown."""
    if model == "letters":
        share = letters(text)
        return {
            "critique": f"{share:.0%} of it are small letters.", "grade": round(share, 3),
            "verdict": "pass" if share >= 0.5 else "fail",
        }  # fmt: skip
    found = QUOTED.search(text)
    if found is None:
        raise ValueError(f"this is not what a judge is shown: {text[:500]}")
    asked, answer = found["asked"], found["answer"] or ""
    passes = task.right(asked, answer) != (drawn("errs", model, asked, answer) < ERRS)
    if model in LOOPHOLES and LOOPHOLES[model](answer):
        return {"critique": "It is excellent.", "grade": 1.0, "verdict": "pass"}
    doubt = 0.1 * drawn("doubt", model, asked, answer)
    if passes:
        return {"critique": f"It contains {asked[0]}.", "grade": round(1 - doubt, 3), "verdict": "pass"}
    return {"critique": f"It does not contain {asked[0]}.", "grade": round(doubt, 3), "verdict": "fail"}


def complete(request: dict[str, object]) -> dict[str, object]:
    """A chat completion."""
    messages: list[dict[str, str]] = request["messages"]  # type: ignore[assignment]
    said = json.dumps(assess(str(request["model"]), messages[-1]["content"]))
    usage = {"prompt_tokens": sum(len(m["content"]) for m in messages) // 4, "completion_tokens": len(said) // 4}
    usage["total_tokens"] = sum(usage.values())
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": said}}
    return {
        "id": "judged", "object": "chat.completion", "created": 0, "model": request["model"], "choices": [choice],
        "usage": usage,
    }  # fmt: skip


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection: HTTP/1.1, one request after the other."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(size[1]) if size else 0)
            try:
                status, answer = "200 OK", complete(json.loads(body))
            except (ValueError, KeyError) as error:
                status, answer = "400 Bad Request", {"error": {"message": str(error)}}
            text = json.dumps(answer).encode()
            lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(text)}", "", ""]
            writer.write("\r\n".join(lines).encode() + text)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    # The process that started this one holds the other end of standard input, and lets go of it when it ends.
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    await over.wait()


if __name__ == "__main__":
    asyncio.run(main())
