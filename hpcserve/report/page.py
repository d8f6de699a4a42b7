"""A report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hpcserve.draw import Curve, CurvePoint, curve_svg, plan_svg
from hpcserve.fabric import fabric_of
from hpcserve.nouns import PlacementResult, Report
from hpcserve.report.tables import (
    GOODPUT_COLUMNS,
    NO_RUN,
    RATE_COLUMNS,
    RIGHT_COLUMNS,
    TRANSFER_COLUMNS,
    goodput_rows,
    question,
    rate_rows,
    transfer_rows,
)

__all__ = ["html"]

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ report.sweep }}: goodput per placement</title>
<style>
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#6a737d;--line:#d3d8dd;--ground:#ffffff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--line:#3a424b;--ground:#16191d}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground)}
body{max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}.soft{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line)}
.right{text-align:right}
figure{margin:1rem 0;overflow-x:auto}figcaption{color:var(--soft)}svg{max-width:100%;height:auto}
</style>
</head>
<body>
<h1>{{ report.sweep }} on {{ report.site.name }}</h1>
<p class="soft">{{ question }}</p>
<h2>Recommendation</h2>
<ul>{% for sentence in report.recommendation %}
<li>{{ sentence }}</li>{% endfor %}
</ul>
{% macro table(columns, rows) %}{% if not rows %}<p class="soft">{{ no_run }}</p>{% else %}<div class="wide"><table>
<thead><tr>{% for column in columns %}<th{{ side(column) }}>{{ column }}</th>{% endfor %}</tr></thead>
<tbody>{% for row in rows %}
<tr>{% for cell in row %}<td{{ side(columns[loop.index0]) }}>{{ cell }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table></div>{% endif %}{% endmacro %}
{% macro side(column) %}{% if column in right %} class="right"{% endif %}{% endmacro %}
<h2>Goodput</h2>
{{ table(goodput_columns, goodput_rows) }}
{% if rate_rows %}<figure>{{ curve }}
<figcaption>Bars are 95 % intervals; on the dashed line every request is good.</figcaption></figure>{% endif %}
<h2>Each offered rate</h2>
{{ table(rate_columns, rate_rows) }}
<h2>KV transfer, predicted and measured</h2>
{{ table(transfer_columns, transfer_rows) }}
{% if report.invalid %}<h2>Invalid runs, not counted</h2>
<ul>{% for run in report.invalid %}{% for reason in run.reasons %}
<li>{{ run.id }}: {{ reason }}</li>{% endfor %}{% endfor %}
</ul>
{% endif %}{% if drawings %}<h2>Placements on the fabric</h2>
{% for name, drawing in drawings %}<figure><figcaption>{{ name }}</figcaption>{{ drawing }}</figure>
{% endfor %}{% endif %}</body>
</html>
"""


def html(report: Report) -> str:
    """The page, complete: tables, the curve, and each placement drawn on the site's fabric."""
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)
    return page.render(
        report=report,
        right=RIGHT_COLUMNS,
        no_run=NO_RUN,
        question=question(report),
        goodput_columns=GOODPUT_COLUMNS,
        goodput_rows=list(goodput_rows(report)),
        rate_columns=RATE_COLUMNS,
        rate_rows=list(rate_rows(report)),
        transfer_columns=TRANSFER_COLUMNS,
        transfer_rows=list(transfer_rows(report)),
        curve=_trusted(curve_svg([_curve(placement) for placement in report.placements if placement.rates])),
        drawings=_drawings(report),
    )


def _curve(placement: PlacementResult) -> Curve:
    """The interval of the good request rate is the attainment's, in requests/s."""
    points = []
    for result in placement.rates:
        requests_per_s = result.good_per_s / result.attainment if result.attainment else result.request_rate
        points.append(
            CurvePoint(
                offered_per_s=result.request_rate,
                good_per_s=result.good_per_s,
                low_per_s=result.attainment_low * requests_per_s,
                high_per_s=result.attainment_high * requests_per_s,
            )
        )
    return Curve(name=placement.name, points=tuple(points))


def _drawings(report: Report) -> list[tuple[str, Markup]]:
    leaf_of = fabric_of(report.site).leaves_named
    times = [path.transfer_ms for placement in report.placements for path in placement.plan.paths]
    scale = (min(times), max(times)) if times else None
    return [
        (placement.name, _trusted(plan_svg(placement.plan, leaf_of=leaf_of, scale_ms=scale)))
        for placement in report.placements
    ]


def _trusted(svg: str) -> Markup:
    """SVG that `draw` made, in which every text is escaped already."""
    return Markup(svg)  # noqa: S704 - see above
