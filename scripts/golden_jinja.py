#!/usr/bin/env python3
"""Small chat templates and what Jinja makes of them: tests/golden/hf/chat/jinja_more.jsonl.

Needs jinja2 (3.1). Jinja is set up as transformers does it (utils/chat_template_utils.py). Templates whose result
is an address in memory are left out, and errors whose words depend on Python's version.

    scripts/golden_jinja.py tests/golden/hf/chat/jinja_more.jsonl
"""
import json
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


TEMPLATES = r'''
{{ 'a{b}c{0}'.format('x', b=2) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:,}|{:.3f}|{:x}|{!r}'.format('a','b','c',42,1234567,3.14159,255,'q') }}
{{ '%5s|%-5s|%05d|%.2f|%x|%r|%%|%e' % ('a','b',42,3.14159,255,'q',12345.678) }}
{{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }}
{{ 'Hello World'.swapcase() }} {{ 'hello'.center(11, '*') }} {{ 'ab'.center(5) }} {{ 'abc'.center(6) }} {{ 'x'.rjust(4,'-') }}
{{ 'a b  c'.split(' ') }} {{ ' a b  c '.split() }} {{ ' a b  c '.rsplit(None, 1) }} {{ 'a,b,c'.rsplit(',') }} {{ ''.split() }} {{ ''.split(',') }}
{{ 'abcabc'.rfind('b') }} {{ 'abcabc'.rindex('c') }} {{ 'abc'.find('z') }} {{ 'abcabc'.find('b', 2) }} {{ 'aaa'.count('a', 1) }} {{ 'abc'.count('') }}
{{ 'abc'.index('z') }}
{{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ ''.replace('', 'x') }}
{{ 'a\tb'.expandtabs(4) }} {{ 'ÀÉ'.lower() }} {{ 'ΑΣ'.lower() }} {{ 'ŉ ﬁ'.upper() }} {{ 'ǆ'.title() }} {{ "they're bill's".title() }} {{ "they're bill's" | title }}
{{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ '٣'.isdecimal() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }} {{ ''.isspace() }}
{{ 1e16 }} {{ 1e15 }} {{ 123456789.123 }} {{ 1e-5 }} {{ 0.0001 }} {{ -0.0 }} {{ 1/3 }} {{ 100.0 }} {{ 1e100 }}
{{ 7 % -3 }} {{ -7 // -2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ 10 ** 20 }} {{ True + True }} {{ -True }}
{{ [1,2] * 2 }} {{ 2 * (1,) }} {{ 'a' * -1 }}|
{{ [1,[2,{'a':(1,)}]] == [1,[2,{'a':(1,)}]] }} {{ (1,2) == [1,2] }} {{ [1,2] < [1,3] }} {{ (1,) < (1,2) }} {{ 'a' < 'B' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ {} < {} }}
{{ 'a' in 1 }}
{{ 1 in 'a' }}
{{ x.y }}
{{ none.x }}
[{{ none.x is defined }}]
{{ 5.x }}
{{ (5).x }}
{{ [1,2].x }}
{{ [1,2]['x'] }}
{{ 'abc'.foo }}
{{ 'abc'.foo() }}
{{ x() }}
{{ 5() }}
{{ none() }}
{{ none[0] }}
{{ none[1:] }}
{{ x[1:] }}
{{ {'a':1}[1:] }}
{{ [1,2,3][5:] }} {{ [1,2,3][-5:2] }} {{ [1,2,3][::-2] }} {{ 'abc'[::0] }}
{{ 'abcdef'[4:1:-1] }} {{ 'héllo'[1:3] }} {{ (1,2,3)[:2] }} {{ range(10)[2:5] | list }}
{{ range(3) }} {{ range(1,10,3) }} {{ range(0) | list }}
{{ range(100001) }}
{{ dict([('a',1),['b',2]]) }} {{ dict() }}
{{ {'b':1,'a':2}|dictsort(by='value') }} {{ {'b':1,'a':2}|dictsort(reverse=true) }} {{ {'B':1,'a':2}|dictsort(true) }}
{{ ['b','A','c']|sort }} {{ ['b','A','c']|sort(case_sensitive=true) }} {{ [{'n':2},{'n':1}]|sort(attribute='n') }} {{ [1,'a']|sort }}
{{ ['a','A','b']|unique|list }} {{ ['a','A','b']|unique(true)|list }}
{{ [3,1,2]|max }} {{ ['a','B']|max }} {{ []|max }}| {{ [{'v':1},{'v':5}]|max(attribute='v') }}
{{ [1,2,3]|sum(start=10) }} {{ [{'v':1},{'v':5}]|sum(attribute='v') }} {{ [{'v':1},{'v':5}]|sum('v', 2) }}
{{ 'abc'|batch(2)|list }} {{ [1,2,3,4,5]|batch(2, 0)|list }} {{ [1,2,3,4,5]|slice(3)|list }} {{ [1,2,3,4,5]|slice(3, 9)|list }}
{{ [{'a':{'b':1}}]|map(attribute='a.b')|list }} {{ [[1,2],[3,4]]|map(attribute=1)|list }} {{ ['a ',' b']|map('trim')|join('|') }}
{{ [1,2,3]|select('divisibleby', 2)|list }} {{ [1,none,0]|reject('none')|list }} {{ [{'x':1},{}]|selectattr('x','defined')|list }}
{{ [1,2]|map('nofilter')|list }}
{{ [1,2]|select('notest')|list }}
{{ 'a'|nofilter }}
{{ 1 is notest }}
{{ 'x'|indent }} {{ 'a\nb\n'|indent(1) }}| {{ 'a\n\nb'|indent(2, blank=true) }}
{{ 'foo bar baz qux'|truncate(9) }} {{ 'foo bar baz qux'|truncate(9, True) }} {{ 'foo bar baz qux'|truncate(11) }} {{ 'foo bar baz qux'|truncate(9, False, '...', 0) }}
{{ 'a <b>c</b> <!-- d --> e'|striptags }} {{ 'a b/c?d=e&é'|urlencode }} {{ {'a b':'c&d'}|urlencode }}
{{ '42'|int }} {{ ' 42 '|int }} {{ '0x1f'|int(0, 16) }} {{ '1f'|int(base=16) }} {{ 'z'|int(-1) }} {{ none|int }} {{ '3.9'|int }} {{ 'inf'|float }} {{ 'x'|float(1.5) }} {{ true|int }}
{{ 42.55|round(1) }} {{ 42.4|round(0,'ceil') }} {{ 42.56|round(1,'floor') }} {{ 3|round }} {{ 2.675|round(2) }} {{ 1234.5|round(-2) }}
{{ -3.5|abs }} {{ 'a'|abs }}
{{ 'a'|list }} {{ 5|list }}
{{ [1,2]|first }} {{ []|first }}| {{ 'abc'|last }} {{ {'a':1}|first }}
{{ 5|length }}
{{ ([1,2]|map('string'))|length }}
{{ [1,2]|map('string') is sequence }} {{ [1,2]|map('string') is iterable }} {{ {'a':1}.keys() is sequence }} {{ range(3) is sequence }}
{% set g = [1,2]|map('string') %}{{ g|join }}{{ g|join }}
{{ {'a':[1,2],'b':none}|tojson(indent=4) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=2) }} {{ (1,2)|tojson }} {{ {1:2, none:3, true:4, 1.5: 5}|tojson }}
{{ x|tojson }}
{{ [1,2]|map('string')|tojson }}
{{ 'a'|tojson(indent='--') }} {{ [1]|tojson(indent='--') }} {{ [1,2]|tojson(indent=0) }}
{{ namespace(a=1) }} {{ namespace(a=1).b }}|
{{ namespace(a=1).b.c }}
{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.b }}{% set d = {} %}{% set d.x = 1 %}
{% for k, v in [(1,2,3)] %}{{ k }}{% endfor %}
{% for k, v in [(1,)] %}{{ k }}{% endfor %}
{% for k, v in [1] %}{{ k }}{% endfor %}
{% for x in [1,2,3] %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}
{% for x in [] %}{% else %}e{{ x is defined }}{% endfor %}
{% for x in [1,2] %}{% for y in [1] %}{{ loop.index }}{{ loop.length }}{% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1,2] %}{% set y = x %}{% endfor %}{{ y is defined }}
{% for i in [1,2] %}{% if i == 1 %}{% set q = 5 %}{% endif %}[{{ q }}]{% endfor %}
{% if true %}{% set z = 3 %}{% endif %}{{ z }}
{% set a = 1 %}{% with %}{% set a = 2 %}{{ a }}{% endwith %}{{ a }}
{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% macro m(a, b='x', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=2) }} {{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}
{% macro m(a) %}[{{ caller(a) }}]{% endmacro %}{% call(v) m(3) %}v={{ v }}{% endcall %}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}
{% do x %}
{% if a %}x
{% for a in b %}x{% endif %}
{% for a in b
{% raw %}{{ a }}
{# abc
{{ 'abc }}
{{ a ? b }}
{{ (1 }}
{{ 1) }}
{{ [1} }}
{{ }}
{{ 1 2 }}
{{ a b }}
{{ a | }}
{{ a is }}
{{ a. }}
{{ a[ }}
{{ {1} }}
{{ {'a' 1} }}
{% set 1 = 2 %}
{% set a %}
{% set a.b %}
{% set = 1 %}
{% for 1 in x %}{% endfor %}
{% for a x %}{% endfor %}
{% %}
{% 5 %}
{% macro f %}{% endmacro %}
{% macro f(a=1, b) %}{% endmacro %}
{% macro f(1) %}{% endmacro %}
{% call f %}{% endcall %}
{% elif %}
{{ f(a=1, 2) }}
{{ 'a' if }}
{{ not }}
{{ 1 + }}
{{ 1 is defined is defined }}
{{ 1 not 2 }}
{{ a.b.c(1)[2].d|e is f }}
{{ 1 if 0 else 2 if 0 else 3 }} {{ 1 if 1 }}
{{ [1,2,] }} {{ {'a':1,} }} {{ (1,2,) }} {{ dict(a=1,) }}
{{ 'a' 'b' "c" }} {{ "it's" }} {{ ['\x00\x7f\xa0\u200b\U0001f600'] }}
{{ "\u00e9\x41\101\q\\" }}
{{ {'a': 1}.items() }} {{ {'a': 1}.keys() }} {{ {'a':1}.values() }}
{{ {'a': 1}.pop('a') }}
{{ {'a': 1}.update({}) }}
{{ [].append }}
{{ 'abc'.__class__ }}
{{ [3,1].index(1) }} {{ [1,1].count(1) }} {{ (1,2).index(2) }} {{ [1].index(5) }}
{{ ['a', 1]|join(', ') }} {{ ', '.join(['a', 1]) }}
{{ ('a', 'b')|join }} {{ 5|string|length }} {{ none|string }} {{ true|lower }}
{{ 'a'.startswith('') }} {{ 'abc'.startswith('b', 1) }} {{ 'a'.startswith(1) }}
{{ '  a '.strip(none) }}|{{ 'xaxbx'.strip('x') }} {{ 'xyaxy'.strip('xy') }}
{{ cycler(1,2).next() }} {% set c = cycler(1,2) %}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
{% filter upper|replace('A','b') %}xay{% endfilter %}
{% set x | trim | upper %} a {% endset %}{{ x }}
{% set x %}{% for i in [1,2] %}{{ i }}{% endfor %}{% endset %}[{{ x }}]
{% block b %}x{{ 1 }}{% endblock %} {% block c %}y{% endblock c %}
{% print 1, 2 %} {{ 1, 2 }}
{%- if true -%} a {%- else -%} b {%- endif -%}
{%+ if true +%} a {%+ endif %}
{% if true %}  {# c #}  {% endif %}|
a  {{- 1 -}}  b {{ 2 -}} 
{{ 1 }}

x
{% for x in [1] recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop([2]) if loop.depth < 3 }}{% endfor %}
{% for x in [1] %}{{ loop([2]) }}{% endfor %}
{{ loop.index }}
{{ true and 1 or 0 }} {{ none or 'x' }} {{ not none }} {{ 1 == 1 == 1 }} {{ 1 != 2 > 1 }}
{{ 'a' ~ [1] ~ {'b': none} ~ 1.0 }} {{ 'a' ~ undefinedx ~ 'b' }}
{{ '1' + 1 }}
{{ 1 + '1' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ -'a' }}
{{ {} + {} }}
{{ 'a' - 'b' }}
{{ 'a' * 'b' }}
{{ 'a' * 1.5 }}
{{ [1] % 2 }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ 'a' % 1 }}
{{ '{a}'.format() }}
{{ '{0.a} {1[b]} {2[0]}'.format({'a':1}, {'b':2}, [3]) }}
{{ '{:d}'.format('a') }}
{{ [[1,2],[3]]|map('join','-')|list }} {{ [1,2,3,4]|selectattr('x')|list }}
{{ [{'a':1,'b':2},{'a':1,'b':3},{'a':2,'b':4}]|groupby('a') }}
{% for g in [{'a':1,'b':2},{'a':1,'b':3},{'a':2,'b':4}]|groupby('a') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}
{{ ['a','b']|map(attribute='upper')|list|length }} {{ [{'a':1}]|map(attribute='b')|list }}
{{ '' is string }} {{ 'Ab' is lower }} {{ '1' is lower }} {{ 1.5 is integer }} {{ true is integer }} {{ 1 is sameas 1 }} {{ 1 is sameas true }} {{ 3 is in [1,3] }} {{ 3 is not in [1] }}
{{ 'x' is eq('x') }} {{ 2 is ge 2 }} {{ 2 is lessthan 3 }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ 'a' is callable }} {{ x is callable }}
{{ 3|default(5) }} {{ x.y|default(5) }}
{{ d|default(5) }} {{ d.e|default(5) }}
{{ ''|default('a', true) }} {{ 0|d(1, true) }}
{{ 'a\r\nb\nc'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }}
{{ 'x'.join('abc') }} {{ 'a-b-c'.partition('-') }} {{ 'abc'.rpartition('z') }} {{ 'abc'.partition('z') }} {{ '-5'.zfill(5) }}
{{ {'a':1} == {'a':1.0} }} {{ {'a':1,'b':2} == {'b':2,'a':1} }} {{ 1 in {1.0: 'x'} }} {{ {1:'a', true:'b'} }} {{ {'a':1,'a':2} }}
{{ {[1]: 2} }}
{{ x['a'] }}
{{ 'abc'|attr('upper') is callable }} {{ {'a':1}|attr('a') }}| {{ {'a':1}|attr('keys') is callable }}
{{ 'a&b'|e ~ '<' }} {{ ('<'|e)|length }}
{{ 0x10 + 0b11 + 0o7 }} {{ 1_0 }} {{ 00 }} {{ 1.5e3 }} {{ 1e+3 }} {{ 12.0_1 }} {{ 01 }}
{{ [1,2].0 }} {{ {'a':[5]}.a.0 }} {{ {0: 'z'}.0 }}
{{ 'é'|upper }} {{ 'ß'|capitalize }} {{ 'ÉA'|lower }} {{ 'ǆa'|capitalize }} {{ 'éa b'|title }}
{{ f(*[1,2]) }}
{% macro f(a,b) %}{{ a }}{{ b }}{% endmacro %}{{ f(*[1,2]) }} {{ f(**{'a':1,'b':2}) }} {{ f(1, **{'b':2}) }} {{ f(*[1], b=3) }}
{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q is defined }}
{% for x in [1,2] %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}
{% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }} {% set x = 1, 2 %}{{ x }}
{{ 123456789012345678901234567890 * 2 }} {{ 2 ** 100 }} {{ -5 // 2 }} {{ 10**18 * 10 }}
{{ none|select|list }} {{ none|selectattr('a', 'equalto', 1)|list|length }} {{ ''|map('upper')|list }} {{ 0|reject('odd')|list }} {{ false|rejectattr('a')|list }} {{ none|map(attribute='a')|list }}
{{ none|list }}
{{ 1|selectattr('a')|list }}
{{ '<b>'|safe + '<i>' + '"' }} {{ '&' + '<b>'|safe }} {{ '<b>'|safe ~ '<i>' }} {{ ('a'|e + '<')|length }} {{ '<'|e|e }} {{ '<'|e|forceescape }} {{ '<'|safe|e }} {{ '<b>'|safe + {'a': '<'}|tojson }}
{{ '<'|safe|upper + '<' }} {{ ' <'|safe|trim + '<' }} {{ '<'|safe|title + '<' }} {{ '<'|safe|center(3) + '<' }} {{ '<'|safe|string + '<' }} {{ ('<'|safe + 'x') == '<x' }} {{ ['<'|safe, '<']|join('&') }}
{% if false %}{{ 1|unheard }}{% endif %}fine
{% if true %}{{ 1|unheard }}{% endif %}
{% if false is unheard %}{% endif %}
{% if false %}a{% elif 1|unheard %}b{% endif %}
{{ 1|unheard if false else 2 }} {{ 3 if true else 1|unheard }} {{ 4 if true or 1 is unheard else 5 }}
{{ 1|unheard if true else 2 }}
{{ 1|unheard }}
{% if false %}{% for x in [1] %}{{ x|unheard }}{% endfor %}{% endif %}
{% if false %}{% for x in [1]|unheard %}{{ x }}{% endfor %}{% endif %}ok
{% for x in [] %}{% if x %}{{ x|unheard }}{% endif %}{% endfor %}ok
{% for x in [1] %}{{ x is unheard }}{% endfor %}
{% if false %}{% set x %}{{ 1|unheard }}{% endset %}{% endif %}ok
{% if false %}{% macro m() %}{{ 1|unheard }}{% endmacro %}{% endif %}ok
{% if false %}{% set x = 1|unheard %}{% endif %}ok
{% if false %}{% generation %}{{ 1|unheard }}{% endgeneration %}{% endif %}ok
{% if false %}{% if true %}{{ 1 is not unheard }}{% else %}{{ 2|unheard }}{% endif %}{% endif %}ok
{% if false %}{% filter unheard %}a{% endfilter %}{% endif %}ok
{% if false %}{% set x | unheard %}a{% endset %}{% endif %}ok
{{ range(2, 9, 2) }} {{ range(5)[::2] }} {{ range(1, 10, 3)[1:] }} {{ range(5)[::-1] }} {{ range(9, 2) }} {{ range(3)[5:] }} {{ range(0, 20, 3)[-4:-1:2] }}
{{ 10.0 ** 400 }}
{{ 15|round(-1) }} {{ 25|round(-1) }} {{ -15|round(-1) }} {{ (-25)|round(-1) }} {{ 149|round(-2) }} {{ 7|round(-50) }} {{ 10|abs|round(-1) }} {{ true|round }} {{ 15|round(-1, 'ceil') }}
{{ 1|round(0, 'up') }}
{{ x|float }}
{{ x|int }}
{{ x|int(5) }}
{{ ''|indent(2, true) }}| {{ 'a\n'|indent(2, true, true) }}| {{ '\n'|indent(1, false, true) }}| {{ 'a\r\nb\r'|indent(1) }}
{{ [{'a': 1}, {'b': 2}]|sort(attribute='c') }} {{ [{'b': 2, 'a': 1}, {'b': 1, 'a': 1}]|sort(attribute='a,b') }} {{ [{'b': 2, 'a': 1}, {'b': 1}]|map(attribute='a', default=0)|list }}
{{ [{'a': 1}, {'b': 2}]|sort(attribute='a') }}
{{ [{'r': 'x'}, {}, {'r': 'A'}, {'r': 'a'}]|groupby('r', default='q') }} {{ [{'r': 1}, {'s': 2}]|groupby('r', default=0)|map(attribute='grouper')|list }}
{{ [{'r': 1}, {'s': 2}]|groupby('r') }}
{{ [{'a,b': 2}, {'a,b': 1}]|max(attribute='a,b') }} {{ [{'a,b': 2}, {'a,b': 2}]|unique(attribute='a,b')|list }}
{% set d = {'a': 1} %}{{ d.items()[:] }}
{% set n = 5 %}{{ n[1:] }}
{% set n = none %}{{ n[:1] }}
{% set n = [1]|map('string') %}{{ n[:1] }}
{{ ' 1_000 '|int }} {{ '1__0'|int }} {{ '_1'|int }} {{ '1_'|int }} {{ '1_0.5'|float }} {{ '1_.5'|float }} {{ '0x_f'|int(0, 16) }} {{ '-1_0'|float|int }}
{{ {'a': 1}[y] is defined }} {{ {'a': 1}[y] }}| {{ {y: 2}[y] }} {{ [1][y] is undefined }} {{ 'a'[y] is undefined }}
{{ {'a': 1}[y].b }}
{{ [1][y] + 1 }}
{{ none[y].b }}
{{ y['a'][y] }}
'''


def main():
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    with open(sys.argv[1], "w") as out:
        for template in TEMPLATES.strip("\n").split("\n"):
            row = {"template": template, "context": {"bos": "<s>"}}
            try:
                row["text"] = environment.from_string(template).render(row["context"])
            except Exception as error:
                row["error"], row["error_message"] = type(error).__name__, str(error)
            out.write(json.dumps(row) + "\n")


main()
