"""Makes empty CUDA libraries, so that torch of the package index imports on a machine without a GPU.

torch is linked with a dozen libraries of gigabytes that a CPU never calls. A stub has every symbol that torch names,
and aborts when it is called. For tests alone.
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

# Where torch looks for a library, below site-packages.
CUDA = "nvidia/cu13/lib"
PLACES = {
    "libcudart": CUDA, "libcupti": CUDA, "libcufile": CUDA, "libcublas": CUDA, "libcublasLt": CUDA, "libcufft": CUDA,
    "libcusparse": CUDA, "libnvrtc": CUDA, "libcusolver": CUDA, "libcurand": CUDA, "libnvJitLink": CUDA,
    "libcudnn": "nvidia/cudnn/lib", "libcusparseLt": "nvidia/cusparselt/lib", "libnccl": "nvidia/nccl/lib",
    "libnvshmem_host": "nvidia/nvshmem/lib",
}  # fmt: skip
# Libraries without versions of symbols: theirs are known by how they begin.
BEGINNINGS = {"nccl": "libnccl", "cusparseLt": "libcusparseLt", "cuFile": "libcufile"}

Symbols = dict[str, dict[str, set[str]]]
"""The symbols of a library file by their version; the empty version is none."""


def readelf(*arguments: str | pathlib.Path) -> str:
    return subprocess.run(["readelf", "-W", *map(str, arguments)], capture_output=True, text=True, check=True).stdout


def needed(packages: pathlib.Path) -> Symbols:
    """What torch needs of each library."""
    found: Symbols = {}
    files, versions = {}, collections.defaultdict(set)
    for binary in [*packages.glob("torch/lib/*.so"), *packages.glob("torch/_C*.so")]:
        for file in re.findall(r"NEEDED.*\[(lib[^\]]+)\]", readelf("-d", binary)):
            if file.split(".so")[0] in PLACES:
                files[file.split(".so")[0]] = file
        for file, block in re.findall(r"File: (\S+)  Cnt: \d+\n((?:.*Name: .*\n)+)", readelf("-V", binary)):
            for version in re.findall(r"Name: (\S+)", block):
                versions[version].add(file)
    for binary in [*packages.glob("torch/lib/*.so"), *packages.glob("torch/_C*.so")]:
        for line in readelf("--dyn-syms", binary).splitlines():
            fields = line.split()
            if len(fields) < 8 or fields[6] != "UND":
                continue
            name, _, version = fields[7].replace("@@", "@").partition("@")
            owners = versions[version] if version else {
                files[library] for begins, library in BEGINNINGS.items()
                if re.match(begins + "[A-Z]", name) and library in files
            }  # fmt: skip
            for file in owners:
                found.setdefault(file, {}).setdefault(version, set()).add(name)
    return {file: found.get(file, {}) for file in files.values()}


def build(file: str, symbols: dict[str, set[str]], to: pathlib.Path) -> None:
    """Compile a stub."""
    source = "extern void abort(void);\n"
    script = ""
    for version, names in symbols.items():
        source += "".join(f"void {name}(void) {{ abort(); }}\n" for name in sorted(names))
        if version:
            script += f"{version} {{ global: {' '.join(name + ';' for name in sorted(names))} }};\n"
    with tempfile.TemporaryDirectory() as folder:
        code, versions = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "stub.map")
        code.write_text(source)
        versions.write_text(script)
        command = ["cc", "-shared", "-fPIC", "-O0", "-fno-builtin", "-w", "-o", to, code, f"-Wl,-soname,{file}"]
        subprocess.run([*command, *([f"-Wl,--version-script={versions}"] if script else [])], check=True)


def main() -> None:
    packages = pathlib.Path(sys.argv[1])
    for file, symbols in needed(packages).items():
        to = packages / PLACES[file.split(".so")[0]] / file
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            build(file, symbols, to)


if __name__ == "__main__":
    main()
