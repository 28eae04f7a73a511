"""The report's style sheet: one accent, system fonts, dark and light by the reader's setting, plain in print."""

# Of settings in order, from dark to light as the colour map "plasma", which all kinds of colour vision tell apart.
SETTINGS = (
    "--s0: #0d0887; --s1: #4a03a0; --s2: #7b03a8; --s3: #a11b9b; --s4: #bf3984; --s5: #d8576b; --s6: #e86f56;"
    " --s7: #ee8045;"
)
_STYLE = """
:root {
  color-scheme: light dark; [settings]
  --page: #f6f5f1; --card: #ffffff; --ink: #1d2329; --quiet: #656e78; --rule: #e2e0d8;
  --held: #0b6e69; --train: #8c9aa8; --level: #b4601c; --second: #6a4c93; --mark: #fbe7b2; --bar: #0b6e6922;
}
@media (prefers-color-scheme: dark) { :root {
  --page: #14181c; --card: #1c2228; --ink: #e6e9ec; --quiet: #98a2ad; --rule: #313941;
  --held: #4fc3b8; --train: #7d8b9a; --level: #e79a58; --second: #b79ae0; --mark: #5a4a17; --bar: #4fc3b833;
  --s0: #7f7cff; --s1: #a46bf5; --s2: #c563d8; --s3: #dd67b3; --s4: #ee7590; --s5: #f98d6c; --s6: #fdab4e;
  --s7: #f7d14a;
} }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; padding: clamp(16px, 4vw, 56px); background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
main { max-width: 1120px; margin: 0 auto; }
header { margin-bottom: 36px; }
h1 { font-size: clamp(26px, 4vw, 38px); line-height: 1.15; letter-spacing: -.02em; margin: 0 0 8px; }
h2 { font-size: 20px; letter-spacing: -.01em; margin: 56px 0 16px; }
h3 { font-size: 16px; margin: 32px 0 10px; }
a { color: inherit; text-decoration-color: var(--held); text-underline-offset: 3px; }
p { margin: 0 0 10px; }
.quiet { color: var(--quiet); }
.status { font-weight: 600; color: var(--held); }
.status.open { color: var(--level); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(180px, 1fr)); gap: 1px;
  background: var(--card); border: 1px solid var(--rule); border-radius: 12px; overflow: hidden; margin: 0; }
.figures > div { box-shadow: 0 0 0 1px var(--rule); padding: 16px 18px; }
.figures .lead { grid-column: span 2; grid-row: span 2; display: flex; flex-direction: column; }
.figures dt { font-size: 14px; color: var(--quiet); }
.figures dd { margin: 2px 0 0; font-size: 25px; line-height: 1.25; font-weight: 600; letter-spacing: -.01em; }
.figures .lead dd { font-size: clamp(40px, 7vw, 56px); line-height: 1.1; color: var(--held); }
.figures small { display: block; font-size: 13.5px; font-weight: 400; letter-spacing: 0; color: var(--quiet); }
.figures .lead small { font-size: 15px; margin-top: 6px; color: var(--ink); }
.scale { display: flex; flex-wrap: wrap; justify-content: space-between; margin-top: auto; padding-top: 14px;
  font-size: 13px; color: var(--quiet); }
.scale .bar { flex-basis: 100%; height: 10px; }
.bar { background: var(--bar); border-radius: 3px; } .bar i { display: block; height: 10px; min-width: 1px;
  background: var(--held); border-radius: 3px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 20px; }
figure, .card { margin: 0; padding: 18px 20px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 12px; min-width: 0; }
.card { overflow-x: auto; }
figcaption { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 2px 0 6px; font-size: 14px; color: var(--quiet); }
.legend b { color: var(--ink); font-weight: 600; }
.key i { display: inline-block; width: 16px; height: 0; margin-right: 6px; vertical-align: 4px;
  border-top: 3px solid var(--line); }
.key.level i { border-top-style: dashed; border-top-width: 2px; }
.held { --line: var(--held); } .train { --line: var(--train); } .second { --line: var(--second); }
.level { --line: var(--level); } .rest { --line: var(--rule); }
.s0 { --line: var(--s0); } .s1 { --line: var(--s1); } .s2 { --line: var(--s2); } .s3 { --line: var(--s3); }
.s4 { --line: var(--s4); } .s5 { --line: var(--s5); } .s6 { --line: var(--s6); } .s7 { --line: var(--s7); }
svg { display: block; width: 100%; height: auto; }
svg text { font-size: 13px; fill: var(--quiet); }
svg .left, svg .name, svg .before { text-anchor: end; } svg .below { text-anchor: middle; }
svg path { fill: none; } svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--quiet); }
svg .line { stroke: var(--line); stroke-width: 2; stroke-linejoin: round; }
svg .level { stroke: var(--line); stroke-width: 1.5; stroke-dasharray: 6 4; }
svg .band { fill: var(--line); opacity: .16; }
svg path.change { stroke: var(--quiet); stroke-dasharray: 2 3; }
svg circle { fill: var(--line); stroke: var(--card); stroke-width: 1; }
.attention { display: flex; flex-wrap: wrap; gap: 28px; align-items: flex-start; } .attention > * { flex: 1 1 320px; }
.attention .maps { flex-basis: calc(var(--heads) * 80px); }
.maps { display: grid; grid-template-columns: max-content repeat(var(--heads), minmax(20px, 150px)); gap: 8px 6px;
  font-size: 13px; }
.maps small { display: block; font-size: 11px; line-height: 1.5; white-space: nowrap; color: var(--quiet); }
.map path { fill: var(--held); } .map .frame { fill: var(--card); stroke: var(--rule); stroke-width: .15; }
.map .w1 { opacity: .12; } .map .w2 { opacity: .25; } .map .w3 { opacity: .42; } .map .w4 { opacity: .6; }
.map .w5 { opacity: .8; } .map .w6 { opacity: 1; } .large text { font-size: 11.5px; fill: var(--ink); }
.samples { display: grid; gap: 20px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); }
.sentence { font-size: 17px; margin-bottom: 12px; }
mark { background: var(--mark); color: inherit; border-radius: 4px; padding: 2px 6px;
  font-size: .82em; font-weight: 600; white-space: nowrap; }
.answer { font-size: 14px; color: var(--quiet); margin: 10px 0 0; } .answer b { color: var(--ink); }
.fillings { list-style: none; margin: 0 0 10px; padding: 0; }
.fillings li { display: grid; grid-template-columns: minmax(7ch, 15ch) 1fr 5.5ch; gap: 12px; align-items: center;
  line-height: 1.7; }
.fillings .right { color: var(--held); font-weight: 700; }
.fillings span:last-child { text-align: right; font-size: 14px; color: var(--quiet); }
.part + .part { margin-top: 20px; }
.confusion { width: auto; } .confusion th, .confusion td { padding: 7px 10px; border: 0; }
.confusion td { text-align: right; } .confusion .right, .confusion .wrong { border: 1px solid var(--card); }
.confusion .right { background: color-mix(in srgb, var(--held) calc(var(--share) * 75%), transparent); }
.confusion .wrong { background: color-mix(in srgb, var(--level) calc(var(--share) * 100%), transparent); }
.confusion thead th { text-align: right; } .confusion tbody th { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; font-size: 15px; }
th, td { text-align: left; padding: 6px 12px 6px 0; border-top: 1px solid var(--rule); vertical-align: top;
  font-weight: 400; }
thead th { color: var(--quiet); border-top: 0; }
.number { text-align: right; } .number, .number ~ th, tr th:has(+ .number) { white-space: nowrap; }
th.name { width: 42%; color: var(--quiet); }
.settings tbody th { white-space: normal; } .settings th:first-child, .runs th:first-child { min-width: 22ch; }
.runs td:nth-child(2) { min-width: 14ch; }
.runs .group th { padding-top: 14px; font-weight: 600; } .runs .status { font-weight: 400; }
details { margin-top: 12px; background: var(--card); border: 1px solid var(--rule); border-radius: 12px;
  padding: 0 20px; }
summary { cursor: pointer; padding: 13px 0; font-weight: 600; }
details[open] { padding-bottom: 14px; }
code { font: 14px/1.5 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; }
@media (max-width: 520px) {
  .figures { grid-template-columns: 1fr 1fr; } .figures > div { padding: 12px 14px; } .figures dd { font-size: 21px; }
  figure, .card { padding: 14px; } svg text { font-size: 17px; } table { font-size: 14px; }
  td.number, th.number { padding-right: 6px; } .fillings li { grid-template-columns: 11ch 1fr 5.5ch; gap: 8px; }
  .maps small { display: none; }
}
@media print {
  :root { --page: #fff; --card: #fff; --ink: #000; --quiet: #444; --rule: #ccc; --held: #0b6e69; --train: #8c9aa8;
    --level: #b4601c; --second: #6a4c93; --mark: #fbe7b2; [settings] }
  body { padding: 0; font-size: 11pt; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  figure, .card, .figures { break-inside: avoid; } h2 { break-after: avoid; margin-top: 28px; }
}
"""
STYLE = _STYLE.replace("[settings]", SETTINGS)
