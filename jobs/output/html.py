"""The audit as one page for people: no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jinja2 import Environment, StrictUndefined

from config.secrets import hide_secrets
from jobs.clock import iso
from jobs.output.report import Result
from jobs.output.tables import parts_read

_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>bucketwise audit, {{ now }}</title>
<style>
  :root { color-scheme: light dark; --line: #8884; --error: #c62828; --warning: #b26a00; --ok: #2e7d32; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.6rem; margin-bottom: 0; }
  h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
  .verdict { font-size: 1.1rem; }
  .scroll { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; }
  th, td { border-bottom: 1px solid var(--line); }
  td.place { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; }
  .error { color: var(--error); font-weight: 600; }
  .warning { color: var(--warning); font-weight: 600; }
  .ok { color: var(--ok); font-weight: 600; }
</style>
</head>
<body>
<h1>bucketwise audit</h1>
<p>As of <time datetime="{{ now }}">{{ now }}</time>.</p>
<p class="verdict">
{%- if broken %}<span class="error">{{ broken }} of {{ policies|length }} policies not kept</span>
{%- else %}<span class="ok">All {{ policies|length }} policies are kept</span>{% endif %}
</p>
{% for policy in policies %}
<section>
<h2>{{ policy.name }}:
{% if policy.error %}<span class="error">could not be audited</span>
{% elif policy.kept %}<span class="ok">kept</span>
{% else %}<span class="error">not kept</span>{% endif %}</h2>
{% if policy.error %}<p>{{ policy.error }}</p>{% endif %}
{% if policy.read %}<p>{{ policy.read|capitalize }}.</p>{% endif %}
{% if policy.findings %}
<div class="scroll"><table>
<thead><tr><th>Severity</th><th>Code</th><th>Place</th><th>What</th></tr></thead>
<tbody>
{% for finding in policy.findings %}
<tr><td class="{{ finding.severity }}">{{ finding.severity }}</td><td>{{ finding.code }}</td>
<td class="place">{{ finding.place }}</td><td>{{ finding.message }}</td></tr>
{% endfor %}
</tbody></table></div>
{% elif not policy.error %}<p>Nothing found.</p>{% endif %}
</section>
{% endfor %}
</body>
</html>
"""


def audit_page(results: Sequence[Result], now: datetime) -> str:
    """The findings in the results' bodies as HTML."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_PAGE)
    policies = [
        {
            "name": result.policy,
            "kept": result.exit_code == 0,
            "error": result.error,
            "read": parts_read(result.body),
            "findings": result.body.get("findings", []),
        }
        for result in results
    ]
    broken = sum(not policy["kept"] for policy in policies)
    return hide_secrets(template.render(policies=policies, now=iso(now), broken=broken))
