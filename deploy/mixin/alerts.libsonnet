// The alerts. docs/runbook has a page for each, under its name.
{
  local config = self._config,

  // The expression for each of the two selectors of kstatd's targets; a selector replaces %s.
  local targets(expression) =
    '(%s or %s)' % [std.strReplace(expression, '%s', config.selector), std.strReplace(expression, '%s', config.labelSelector)],

  // True if a counter has increased, including series that appeared with their first increment, which `increase` does not count.
  local grew(counter, window) =
    '(increase(%(counter)s[%(window)s]) > 0 or (%(counter)s > 0 unless %(counter)s offset %(window)s))'
    % { counter: counter, window: window },

  // Without the replicas of a standby that wait: they have the same objects and lines as the one that exposes them, which reports them.
  local exposed(expression) = std.stripChars(expression, '\n') + '\n  unless on (%(by)s)\nkstatd_standby{%(ownSelector)s} == 1' % config,

  // A label `host` from the address: the ports of a process are different targets.
  local host(expression) = 'label_replace(%s, "host", "$1", "instance", "(.+?)(:[0-9]+)?")' % expression,

  local shards = targets('kube_state_metrics_total_shards{%s}'),
  local samples = targets('scrape_samples_scraped{%s}'),
  // A standby of several replicas has no samples until it takes over.
  local samplesBefore = targets('scrape_samples_scraped{%s} offset 1h > 0'),

  // A rate of each system process of a node divided by last week's mean over all nodes, where it is above a threshold.
  // The resource becomes a label.
  local usage(resource, counters, least) =
    local rate(offset) =
      'sum by (%(by)s, name) (' % config
      + std.join(' + ', ['rate(kstatd_node_process_%s_total{%s}[30m]%s)' % [counter, config.ownSelector, offset] for counter in counters])
      + ')';
    'label_replace(\n'
    + '    (%s > %g)\n' % [rate(''), least]
    + '    / on (cluster, job, name) group_left\n'
    + '    avg by (cluster, job, name) (%s)\n' % rate(' offset 1w')
    + '    > %d, "resource", "%s", "", "")' % [config.usageFactor, resource],

  local alert(name, severity, hold, expression, summary, description) = {
    alert: 'Kstatd' + name,
    expr: std.stripChars(expression % config, '\n'),
    [if hold != null then 'for']: hold,
    labels: { severity: severity },
    annotations: {
      summary: summary,
      description: description,
      runbook_url: config.runbookUrlPattern % ('Kstatd' + name),
    },
  },

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'kstatd',
        rules: [
          alert(
            'Down',
            'critical',
            '5m',
            |||
              %(up)s == 0
                unless on (cluster, namespace, service, job, instance)
              (
                %(down)s
                  and on (cluster, host)
                %(replica)s
                  and on (cluster, namespace, service, job)
                (
                  %(exposing)s
                    unless on (cluster, host)
                  %(down)s
                    unless on (cluster, namespace, service, job)
                  %(shards)s > 1
                )
              )
                or
              absent(%(up)s)
            ||| % {
              up: targets('up{%s}'),
              // Only what was a replica of a standby itself counts as one.
              replica: host('last_over_time(kstatd_standby{%(ownSelector)s}[1d])' % config),
              // A replica of a standby, all ports of which are scraped. Those of another shard expose something else.
              exposing: host('kstatd_standby{%(ownSelector)s} == 0' % config),
              down: host(targets('up{%s}') + ' == 0'),
              shards: shards,
            },
            'kstatd cannot be scraped.',
            'Prometheus cannot scrape {{ with $labels.instance }}{{ . }} of {{ $labels.job }}{{ else }}any kstatd: there is no target{{ end }}.',
          ),
          alert(
            'NotReady',
            'warning',
            '10m',
            'kstatd_ready{%(ownSelector)s} == 0',
            'kstatd has not finished its first lists.',
            '{{ $labels.instance }} has not been ready for 10 minutes: its metrics are incomplete.',
          ),
          alert(
            'ScrapeSlow',
            'warning',
            '15m',
            targets('avg_over_time(scrape_duration_seconds{%s}[10m])') + ' > %(slowScrapeSeconds)g',
            'Scrapes of kstatd are slow.',
            'A scrape of {{ $labels.instance }} takes {{ $value | humanizeDuration }}; above the scrape timeout its metrics are lost.',
          ),
          alert(
            'ScrapesIncomplete',
            'warning',
            '5m',
            'sum by (%(by)s, scraper, cause) (increase(kstatd_http_scrapes_incomplete_total{%(ownSelector)s}[15m])) > %(incompleteScrapes)g',
            'A scraper does not take all of its scrapes of kstatd.',
            '{{ $labels.instance }}: {{ $labels.scraper }} did not take all of {{ $value | humanize }} responses in 15 minutes, cause {{ $labels.cause }}. It loses all metrics of such a scrape.',
          ),
          alert(
            'StandbyPartition',
            'warning',
            '5m',
            'kstatd_standby_peer_up{%(ownSelector)s} == 0',
            'Replicas of kstatd do not reach each other.',
            '{{ $labels.instance }} gets no answer from the replica {{ $labels.peer }}. If that one runs, both expose the same metrics; if not, no replica takes over from this one.',
          ),
          alert(
            'MemoryNearLimit',
            'warning',
            '15m',
            'max by (cluster, namespace, pod, container) ' + targets('process_resident_memory_bytes{%s}')
            + '\n  / on (cluster, namespace, pod, container)'
            + '\nmax by (cluster, namespace, pod, container) (kube_pod_container_resource_limits{resource="memory"})'
            + '\n  > %(memoryShare)g',
            'kstatd is close to its memory limit.',
            '{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanizePercentage }} of its memory limit; above the limit the process is killed.',
          ),
          alert(
            'SeriesGrowth',
            'warning',
            '10m',
            samples + ' > %(growthFactor)g * ' + samplesBefore + '\n  and\n' + samples + ' - ' + samplesBefore + ' > %(growthSeries)d',
            'kstatd has many more series than an hour ago.',
            '{{ $labels.instance }} has {{ $value | humanize }} samples a scrape, far more than an hour ago.',
          ),
          alert(
            'ConfigReloadFailed',
            'warning',
            '5m',
            targets('kube_state_metrics_last_config_reload_successful{%s}')
            + ' == 0\n  or\nkstatd_statsd_mapping_last_reload_successful{%(ownSelector)s} == 0',
            'kstatd could not load a changed configuration file.',
            '{{ $labels.instance }} runs with an older configuration than its files{{ with $labels.filename }} ({{ . }}){{ end }}.',
          ),
        ],
      },
      {
        name: 'kstatd-cardinality',
        rules: [
          alert(
            'OverBudget',
            'warning',
            null,
            exposed(|||
              sum by (%(by)s, resource, metric_name, label, limit, action) (
                %(statsd)s
                or
                %(kubernetes)s
              )
            ||| % (config {
                     statsd: grew('kstatd_statsd_over_budget_total{%(ownSelector)s}' % config, '15m'),
                     kubernetes: grew('kstatd_kubernetes_over_budget_total{%(ownSelector)s}' % config, '15m'),
                   })),
            'Label sets exceed a budget of kstatd.',
            '{{ $labels.instance }}: {{ with $labels.metric_name }}metric {{ . }}{{ end }}{{ with $labels.resource }} of {{ . }}{{ end }}{{ with $labels.label }}, label {{ . }}{{ end }} exceeds its limit {{ $labels.limit }} and is {{ $labels.action }}.',
          ),
        ],
      },
      {
        name: 'kstatd-kubernetes',
        rules: [
          alert(
            'KindStale',
            'warning',
            '2m',
            'time() - kstatd_kubernetes_last_heard_timestamp_seconds{%(ownSelector)s} > %(staleSeconds)d',
            'kstatd has received nothing about a kind for minutes.',
            '{{ $labels.instance }}: the API server has sent nothing about {{ $labels.resource }}{{ with $labels.namespace }} in {{ . }}{{ end }} for {{ $value | humanizeDuration }}; its metrics are that old.',
          ),
          alert(
            'KindForbidden',
            'warning',
            '5m',
            'sum by (%(by)s, namespace, resource, reason) (increase(kstatd_kubernetes_errors_total{%(ownSelector)sreason=~"forbidden|unauthorized"}[10m])) > 0',
            'kstatd may not list a kind.',
            '{{ $labels.instance }}: the API server answers {{ $labels.reason }} for {{ $labels.resource }}{{ with $labels.namespace }} in {{ . }}{{ end }}. Its metrics are dropped after --staleness-limit.',
          ),
          alert(
            'ListWatchErrors',
            'warning',
            '10m',
            'sum by (%(by)s, reason) (increase(kstatd_kubernetes_errors_total{%(ownSelector)sreason!~"forbidden|unauthorized|not_found|expired"}[10m])) > 5',
            'Lists and watches of kstatd fail.',
            '{{ $labels.instance }}: {{ $value | humanize }} lists and watches failed in 10 minutes, reason {{ $labels.reason }}.',
          ),
          alert(
            'MalformedObjects',
            'warning',
            null,
            exposed(
              '(\n  ' + grew('kstatd_kubernetes_malformed_objects_total{%(ownSelector)s}', '15m')
              + '\n  or\n  ' + grew('kstatd_kubernetes_oversized_objects_total{%(ownSelector)s}', '15m') + '\n)'
            ),
            'kstatd skips objects.',
            '{{ $labels.instance }}: objects of {{ $labels.resource }} could not be decoded, or have too many series in one family. They have no metrics.',
          ),
          alert(
            'CustomResourceValueErrors',
            'warning',
            null,
            exposed('sum by (%(by)s, resource, family, reason) (' + grew('kstatd_custom_resource_value_errors_total{%(ownSelector)sreason!~"nothing|optional"}', '15m') + ')'),
            'Values of custom resources yield no series.',
            '{{ $labels.instance }}: values for {{ $labels.family }} of {{ $labels.resource }} could not be used, reason {{ $labels.reason }}. Their series are missing.',
          ),
          alert(
            'CustomResourceMetricEmpty',
            'info',
            '1h',
            |||
              max by (cluster, job, resource, family) (kstatd_custom_resource_value_errors_total{%(ownSelector)sreason="nothing"}) > 0
                and on (cluster, resource)
              sum by (cluster, resource) (kstatd_kubernetes_objects{%(ownSelector)s}) > 0
                unless on (cluster, family)
              label_replace(count by (cluster, __name__) ({customresource_kind!=""}), "family", "$1", "__name__", "(.+)")
            |||,
            'A custom resource metric has no series.',
            'No object of {{ $labels.resource }} has a value at the path of {{ $labels.family }}.',
          ),
          alert(
            'ShardMissing',
            'critical',
            '15m',
            'count by (cluster, namespace, job) (count by (cluster, namespace, job, shard_ordinal) ' + targets('kube_state_metrics_shard_ordinal{%s}') + ')'
            + '\n  < max by (cluster, namespace, job) ' + shards + '\n  or\nmax by (cluster, namespace, job) ' + shards + '\n  != min by (cluster, namespace, job) ' + shards
            + '\n  or\nmax by (cluster, namespace, job) ' + targets('kube_state_metrics_shard_ordinal{%s}') + '\n  >= max by (cluster, namespace, job) ' + shards,
            'A shard of kstatd is missing.',
            'Objects of the missing shards of {{ $labels.job }} have no metrics, or the replicas disagree about the number of shards.',
          ),
        ],
      },
      {
        name: 'kstatd-statsd',
        rules: [
          alert(
            'UdpDrops',
            'warning',
            '5m',
            'sum by (%(by)s) ' + targets('rate(statsd_exporter_udp_packet_drops_total{%s}[5m])') + ' > 0',
            'StatsD datagrams are lost.',
            '{{ $labels.instance }}: the kernel drops {{ $value | humanize }} datagrams a second, because the receive buffer is full.',
          ),
          alert(
            'StatsdRejects',
            'warning',
            '15m',
            exposed(|||
              sum by (%(by)s) (rate(kstatd_statsd_samples_total{%(ownSelector)soutcome!~"accepted|dropped_by_rule|no_event"}[10m]))
                / sum by (%(by)s) (rate(kstatd_statsd_samples_total{%(ownSelector)s}[10m])) > %(rejectedShare)g
            |||),
            'StatsD samples are rejected.',
            '{{ $labels.instance }} rejects {{ $value | humanizePercentage }} of its StatsD samples.',
          ),
          alert(
            'TypeConflict',
            'warning',
            null,
            exposed('sum by (%(by)s, metric_name, type) ' + targets(grew('statsd_exporter_events_conflict_total{%s}', '15m'))),
            'Two senders disagree about a StatsD metric.',
            '{{ $labels.instance }} rejects events of type {{ $labels.type }} for {{ $labels.metric_name }}: the metric exists with another type.',
          ),
          alert(
            'UnmappedShare',
            'info',
            '30m',
            exposed(
              'sum by (%(by)s) ' + targets('rate(statsd_exporter_events_unmapped_total{%s}[15m])')
              + '\n  / sum by (%(by)s) ' + targets('rate(statsd_exporter_events_total{%s}[15m])') + ' > %(unmappedShare)g'
              + '\n  and on (%(by)s) ' + targets('statsd_exporter_loaded_mappings{%s}') + ' > 0'
            ),
            'No mapping rule matches many StatsD events.',
            '{{ $labels.instance }}: no rule matches {{ $value | humanizePercentage }} of the events.',
          ),
        ],
      },
      {
        name: 'kstatd-node',
        rules: [
          alert(
            'NodeProcessUsage',
            'warning',
            '15m',
            std.join('\n  or\n', [
              usage('CPU', ['cpu_seconds'], config.usageCores),
              usage('disks', ['read_bytes', 'written_bytes'], config.usageDiskBytes),
              usage('context switches', ['context_switches'], config.usageSwitches),
            ]),
            'A system process of a node uses ten times as much as last week.',
            '{{ $labels.instance }}: {{ $labels.name }} uses {{ $value | humanize }} times as much ({{ $labels.resource }}) as last week on average over all nodes.',
          ),
          alert(
            'NodePressure',
            'warning',
            '15m',
            'rate(kstatd_node_pressure_full_seconds_total{%(ownSelector)sresource=~"io|memory"}[10m]) > %(pressureShare)g',
            'All tasks of a node wait for IO or memory.',
            '{{ $labels.instance }}: all tasks wait for {{ $labels.resource }} for {{ $value | humanizePercentage }} of the time.',
          ),
        ],
      },
    ],
  },
}
