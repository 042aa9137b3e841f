"""How a process ended, in the words of whoever started it: one table of statuses, many wordings.

Windows gives NTSTATUS values as hexadecimal, unsigned, signed, or as 64-bit numbers, which Node (LM
Studio) rounds so far that two are left: ...810000 is an access violation and all that lies near
it, ...812000 an abort. Shells add 128 to a signal; Python makes it negative.
"""

from __future__ import annotations

from kvwise.engine.wordings import Wording

_STATUSES = {
    "cpu_instructions": ("-4", "132", 0xC000001D),
    "killed": ("-9", "137", 0xC0000017, 0xC000012D),  # no memory; the commit limit
    "library_missing": ("126", "127", 0xC0000135, 0xC0000139, 0xC000007B, 0xC0000142),
    "crashed": (
        "-6", "134", "-7", "135", "-11", "139", "18446744073709515000",
        "18446744072635810000", "18446744072635812000",
        0xC0000005, 0xC0000409, 0xC0000374, 0xC00000FD, 0x80000003,
    ),
}  # fmt: skip
"""Code of the failure -> statuses: a number as written, or an NTSTATUS in all its spellings."""

_SAID = (
    ("it code", r"[Ee]xit(?:s|ed)?(?: with)?(?: exit)? [Cc]ode"),
    ("it Code", r"Exit Code"),
    ("it status", r"exit(?:ed with)? status(?:: exit status)?"),
    ("ith status", r"(?:exited|finished|terminated|ended|died) with (?:exit )?status"),
    ("ith code", r"(?:exited|finished|terminated|ended|died) with code"),
    ("no longer running", r"no longer running"),
    ("WinError", r"WinError"),
    ("ows Error", r"Windows Error"),
    ("rror ", r"[Ee]rror(?: code)?"),
    ("unix_wait_status", r"unix_wait_status"),
    ("xit_code", r"exit_code(?:=Some)?"),
    ("xitStatus(", r"(?:unix_wait_status|ExitStatus)"),
)
_NOT_ONLY_OF_PROCESSES = frozenset({"rror "})
"""Words before any number of an error: only what cannot be anything but an NTSTATUS counts."""
_BETWEEN = r"\W{0,6}(?:is )?\(?"
_SIGNALS = {"cpu_instructions": "4", "killed": "9", "crashed": "5|6|7|8|10|11"}
"""LM Studio gives the number of the signal alone."""


def _spellings(status: str | int) -> tuple[str, ...]:
    if isinstance(status, str):
        return (status,)
    signed = status - (1 << 32)
    wide = str((1 << 64) + signed)
    return (f"0[xX](?i:{status:x})", str(status), str(signed), wide)


def _rows() -> tuple[Wording, ...]:
    rows = []
    for code, statuses in _STATUSES.items():
        for needle, said in _SAID:
            numbers = "|".join(text for each in statuses for text in _spellings(each))
            if code == "killed" and needle == "WinError":
                continue
            if needle in _NOT_ONLY_OF_PROCESSES:
                numbers = "|".join(
                    text for each in statuses if isinstance(each, int) for text in _spellings(each)
                )
            end = r"(?![\dx]|\.\d)"
            rows.append((code, needle, rf"{said}{_BETWEEN}(?P<status>{numbers}){end}"))
        if code in _SIGNALS:
            rows.append((code, "(Exit code: ", rf"\(Exit code: (?P<status>{_SIGNALS[code]})\)"))
    return tuple(rows)


ROWS: tuple[Wording, ...] = _rows()
