"""Drivers that are not there: compiled from `fakes/`, steered by one variable each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvwise.probe.report import DeviceReport, Report
from kvwise.probe.survey import Wish, survey

FAKES = Path(__file__).parent / "fakes"
Compile = Callable[..., str]
Probe = Callable[..., DeviceReport]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile a fake with defines; returns the library's path."""
    folder = tmp_path_factory.mktemp("fakes")
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")

    def make(source: str, *defines: str, name: str | None = None) -> str:
        target = folder / (name or f"{Path(source).stem}{''.join(defines)}.so")
        if not target.exists():
            flags = ["-O1", "-shared", "-fPIC", *(f"-D{each}" for each in defines)]
            subprocess.run(["cc", *flags, "-o", target, FAKES / source], check=True)
        return str(target)

    return make


@pytest.fixture
def probed(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Survey a fake CUDA driver: `probed("spill=20000", nvml="model=0")`."""

    def probe(
        fake: str = "",
        *,
        nvml: str | None = None,
        defines: tuple[str, ...] = (),
        libraries_more: dict[str, str] | None = None,
        **wish: object,
    ) -> Report:
        monkeypatch.setenv("FAKE", fake)
        libraries = {"cuda": compiled("cuda.c", *defines), "nvml": "/nothing/libnvidia-ml.so.1"}
        if nvml is not None:
            monkeypatch.setenv("NVML", nvml)
            libraries["nvml"] = compiled("nvml.c")
        libraries |= libraries_more or {}
        wishes = {"only": ("cuda",), "patience": 0.25, "full": True, **wish}
        return survey(Wish(libraries=libraries, **wishes))  # type: ignore[arg-type]

    return probe


@pytest.fixture
def card(probed: Callable[..., Report]) -> Probe:
    """The only device of such a survey."""

    def probe(fake: str = "", **more: object) -> DeviceReport:
        report = probed(fake, **more)
        assert report.failures == ()
        assert len(report.devices) == 1
        return report.devices[0]

    return probe
