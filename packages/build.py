#!/usr/bin/env python3
"""Packs the programs of a release for npm and Python, without a network: packages/build.py DIST OUT [VERSION]

DIST contains forgerun_OS_ARCH*/forgerun, as goreleaser writes it. The script writes to OUT: forgerun-VERSION.tgz, an npm package for each
platform, of which npm installs only the one for the machine, and a wheel for each platform.
"""

import base64
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
# For each platform of a release: npm's os and cpu, and the tag of the wheel. The programs are static, so they also run with musl.
PLATFORMS = {
    "linux_amd64": ("linux", "x64", "manylinux_2_17_x86_64.musllinux_1_1_x86_64"),
    "linux_arm64": ("linux", "arm64", "manylinux_2_17_aarch64.musllinux_1_1_aarch64"),
    "darwin_amd64": ("darwin", "x64", "macosx_12_0_x86_64"),
    "darwin_arm64": ("darwin", "arm64", "macosx_12_0_arm64"),
    "windows_amd64": ("win32", "x64", "win_amd64"),
    "windows_arm64": ("win32", "arm64", "win_arm64"),
}
LICENSE = (HERE.parent / "LICENSE").read_bytes()


def main() -> None:
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    dist, out = Path(sys.argv[1]), Path(sys.argv[2])
    version = (sys.argv[3] if len(sys.argv) == 4 else json.loads((dist / "metadata.json").read_text())["version"]).removeprefix("v")
    programs = {p: found for p in PLATFORMS for found in sorted(dist.glob(f"forgerun_{p}*/forgerun*"))[:1]}
    if not programs:
        sys.exit(f"{dist} has no forgerun_OS_ARCH*/forgerun: run make snapshot first")
    out.mkdir(parents=True, exist_ok=True)
    for platform, found in programs.items():
        pack_program(out, version, platform, found)
        pack_wheel(out, version, platform, found)
    manifest = json.loads((HERE / "npm" / "package.json").read_text())
    manifest["version"] = version
    manifest["optionalDependencies"] = {npm_name(p): version for p in programs}
    files = {f.name: f.read_bytes() for f in sorted((HERE / "npm").iterdir()) if f.suffix in (".js", ".mjs", ".md")}
    pack_npm(out, manifest, files, executable="bin.js")


def npm_name(platform: str) -> str:
    system, cpu, _ = PLATFORMS[platform]
    return f"@forgerun/{system}-{cpu}"


def pack_program(out: Path, version: str, platform: str, program: Path) -> None:
    system, cpu, _ = PLATFORMS[platform]
    manifest = {
        "name": npm_name(platform), "version": version, "description": f"The program of the package forgerun for {system} {cpu}.",
        "license": "Apache-2.0", "repository": "github:forgerun/forgerun", "os": [system], "cpu": [cpu], "preferUnplugged": True,
    }
    pack_npm(out, manifest, {program.name: program.read_bytes()}, executable=program.name)


def pack_npm(out: Path, manifest: dict, files: dict[str, bytes], executable: str) -> None:
    name = manifest["name"].removeprefix("@").replace("/", "-")
    with tarfile.open(out / f"{name}-{manifest['version']}.tgz", "w:gz") as archive:
        for path, content in {"package.json": json.dumps(manifest, indent=2).encode(), "LICENSE": LICENSE, **files}.items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size, info.mode = len(content), 0o755 if path == executable else 0o644
            archive.addfile(info, io.BytesIO(content))


def pack_wheel(out: Path, version: str, platform: str, program: Path) -> None:
    tag = PLATFORMS[platform][2]
    version = version.replace("-", ".dev0+", 1) if "-" in version else version  # Python's form of 0.2.0-next is 0.2.0.dev0+next
    info = f"forgerun-{version}.dist-info"
    tags = "".join(f"Tag: py3-none-{t}\n" for t in tag.split("."))
    metadata = (
        f"Metadata-Version: 2.1\nName: forgerun\nVersion: {version}\nRequires-Python: >=3.9\nLicense: Apache-2.0\n"
        "Summary: Judges clients of asynchronous HTTP APIs under faults: the forgerun command, and a plugin of pytest.\n"
        "Project-URL: Source, https://github.com/forgerun/forgerun\nClassifier: Framework :: Pytest\n"
        "Description-Content-Type: text/markdown\n\n"
    )
    files = {
        "pytest_forgerun.py": (HERE / "python" / "pytest_forgerun.py").read_bytes(),
        f"forgerun-{version}.data/scripts/{program.name}": program.read_bytes(),
        f"{info}/METADATA": metadata.encode() + (HERE / "python" / "README.md").read_bytes(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: forgerun\nRoot-Is-Purelib: false\n{tags}".encode(),
        f"{info}/entry_points.txt": b"[pytest11]\nforgerun = pytest_forgerun\n",
        f"{info}/LICENSE": LICENSE,
    }
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(out / f"forgerun-{version}-py3-none-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            wheel.writestr(entry, content)


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


main()
