"""The style sheet of the page."""

from __future__ import annotations

from kvwise.report.theme import DARK, LIGHT

_COLOURS = "".join(f"--{name}:light-dark({LIGHT[name]},{DARK[name]});" for name in LIGHT)

CSS = (
    ":root{color-scheme:light dark;"
    + _COLOURS
    + """--page:light-dark(#f6f7f9,#0f1216)}
:root:has(#scheme-light:checked){color-scheme:light}
:root:has(#scheme-dark:checked){color-scheme:dark}
*{box-sizing:border-box}
body{margin:0;padding:2rem clamp(1rem,4vw,3rem);background:var(--page);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI","Noto Sans","PingFang SC","Microsoft YaHei",
"Noto Sans CJK SC",sans-serif}
header,main,footer{max-width:76rem;margin:0 auto}
h1{font-size:1.75rem;line-height:1.25;margin:.2rem 0 1.2rem;letter-spacing:-.01em;
overflow-wrap:anywhere}
h2{font-size:1.25rem;line-height:1.35;margin:2.6rem 0 1rem;overflow-wrap:anywhere}
h3{font-size:1rem;margin:0 0 .7rem}
.scheme{float:right;margin:.35rem 0 .5rem 1rem;display:flex;gap:2px;padding:2px;
border-radius:999px;background:var(--line);font-size:.8rem}
.scheme label{cursor:pointer}
.scheme input{position:absolute;opacity:0;width:1px;height:1px}
.scheme span{display:block;padding:.1rem .65rem;border-radius:999px;color:var(--soft)}
.scheme input:checked+span{background:var(--paper);color:var(--ink)}
.scheme input:focus-visible+span{outline:2px solid var(--blue)}
dl{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(20rem,100%),1fr));gap:.7rem 2rem;
margin:0;clear:both}
dt{color:var(--soft);font-size:.8rem}
dd{margin:0;overflow-wrap:anywhere}
nav ul{margin:1.4rem 0 0;padding:0;list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}
a{color:var(--blue)}
figure,section>.wide{margin:0 0 1.4rem;padding:1.1rem 1.3rem;background:var(--paper);
border:1px solid var(--line);border-radius:12px}
.wide{overflow-x:auto}
figure .wide{margin:0 -1.3rem;padding:.2rem 1.3rem}
.wide:focus-visible{outline:2px solid var(--blue);outline-offset:2px}
figure svg{display:block;max-width:max(100%,48rem);height:auto;overflow:visible}
figure svg text{font-family:inherit}
figcaption,.note{color:var(--soft);font-size:.85rem;margin:.8rem 0 0;max-width:46rem}
.note{margin:-.7rem 0 1.6rem;padding:0 .3rem}
section>.wide{padding:.4rem .4rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.42rem .65rem;text-align:left;vertical-align:top}
thead th{color:var(--soft);font-weight:500;font-size:.8rem;vertical-align:bottom;
border-bottom:1px solid var(--line);line-height:1.3}
thead th.n{white-space:normal}
tbody th{font-weight:500;white-space:nowrap}
tbody td{white-space:nowrap}
tbody tr+tr>*{border-top:1px solid var(--line)}
tbody tr:hover>*{background:color-mix(in srgb,var(--line) 40%,transparent)}
.n{text-align:right;white-space:nowrap}
tr.best th{color:var(--teal)}
tr.best th::after{content:" \\25C6";font-size:.7em}
.remarks{margin:0 0 1.6rem;padding:.2rem 0 .2rem 1.2rem;color:var(--ink);font-size:.92rem}
.remarks li{margin:.25rem 0;overflow-wrap:anywhere}
footer{margin-top:3rem;color:var(--soft);font-size:.8rem}
@media (max-width:40rem){body{padding:1rem .8rem}h1{font-size:1.4rem}
figure{padding:.9rem .8rem}figure .wide{margin:0 -.8rem;padding:.2rem .8rem}}
@media print{body{background:#fff;padding:0}.scheme,nav{display:none}
figure,section>.wide{break-inside:avoid;border-color:#ccc}.wide{overflow:visible}
figure svg{max-width:100%}}
"""
)
"""light-dark() follows the reader's system; the buttons above the title can overrule it."""
