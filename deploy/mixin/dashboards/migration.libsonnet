// An original beside kstatd, family by family, while both run.
local g = import '../grafana.libsonnet';

function(config)
  // Matching leaves the name of a metric aside, so that it has to become a label.
  local family(job) = 'label_replace({job=~"$%s",__name__=~"$family"}, "family", "$1", "__name__", "(.+)")' % job;
  local names = {
    original: family('original'),
    kstatd: family('kstatd'),
    series: '(count by (family) (%(original)s) - count by (family) (%(kstatd)s))' % self,
    sums: '(sum by (family) (%(original)s) - sum by (family) (%(kstatd)s))' % self,
    lost: '(count by (family) (%(original)s) unless count by (family) (%(kstatd)s))' % self,
    added: '(count by (family) (%(kstatd)s) unless count by (family) (%(original)s))' % self,
  };
  local resource(expr) = [
    g.query(expr % 'job=~"$original"', 'original {{instance}}'),
    g.query(expr % 'job=~"$kstatd"', 'kstatd {{instance}}'),
  ];
  g.dashboard(
    config,
    'migration',
    'Migration',
    'An original and kstatd beside each other, by family. Choose both jobs; docs/migration.md says how to run them.',
    [
      g.labelVariable('original', 'job', 'up', 'Original', { multi: false, includeAll: false, current: {} }),
      g.labelVariable('kstatd', 'job', 'up', 'kstatd', { multi: false, includeAll: false, current: {} }),
      {
        name: 'family',
        label: 'Families',
        type: 'textbox',
        query: 'kube_.+',
        current: { text: 'kube_.+', value: 'kube_.+' },
      },
    ],
    [
      g.number('Families of the original', 'count(count by (family) (%(original)s))' % names),
      g.number('Families of kstatd', 'count(count by (family) (%(kstatd)s))' % names),
      g.number('Missing in kstatd', 'count(%(lost)s) or vector(0)' % names, thresholds=[1]),
      g.number('New in kstatd', 'count(%(added)s) or vector(0)' % names, thresholds=[1]),
      g.number('Families with another number of series', 'count(%(series)s != 0) or vector(0)' % names, thresholds=[1]),
      g.number('Families with another sum', 'count(%(sums)s != 0) or vector(0)' % names, thresholds=[1], description='Values that move, such as times of heartbeats, differ by the moment of the scrape.'),
      g.table('Difference in series, by family', 'topk(50, abs(%(series)s))' % names),
      g.table('Difference of the sums, by family', 'topk(50, abs(%(sums)s))' % names),
      g.table('Families that only the original has', '%(lost)s or vector(0)' % names),
      g.table('Families that only kstatd has', '%(added)s or vector(0)' % names),
      g.plot('Series', [
        g.query('count(%(original)s)' % names, 'original'),
        g.query('count(%(kstatd)s)' % names, 'kstatd'),
      ]),
      g.plot('Time of a scrape', resource('scrape_duration_seconds{%s}'), unit='s'),
      g.plot('Memory', resource('process_resident_memory_bytes{%s}'), unit='bytes'),
      g.plot('CPU', resource('rate(process_cpu_seconds_total{%s}[5m])'), unit='percentunit'),
    ],
  )
