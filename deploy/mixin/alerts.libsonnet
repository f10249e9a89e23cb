// The alerts. Each has a page in docs/runbook under its name: what it means, how to see it, what to do.
{
  local config = self._config,
  local selector = config.selector,
  local by = config.by,

  // A counter whose series appear with their first increment: that one counts too, though `increase` cannot see it.
  local grew(counter, window) =
    '(increase(%(counter)s[%(window)s]) > 0 or (%(counter)s > 0 unless %(counter)s offset %(window)s))'
    % { counter: counter, window: window },

  local alert(name, severity, hold, expression, summary, description) = {
    alert: 'Kstatd' + name,
    expr: std.stripChars(expression % (config { selector: selector, by: by }), '\n'),
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
            'up{%(selector)s} == 0 or absent(up{%(selector)s})',
            'kstatd cannot be scraped.',
            'Prometheus cannot scrape {{ with $labels.instance }}{{ . }} of {{ $labels.job }}{{ else }}any kstatd: there is no target{{ end }}.',
          ),
          alert(
            'NotReady',
            'warning',
            '10m',
            'kstatd_ready{%(selector)s} == 0',
            'kstatd has not finished its first lists.',
            '{{ $labels.instance }} is not ready for 10 minutes: what it serves is not complete.',
          ),
          alert(
            'ScrapeSlow',
            'warning',
            '15m',
            'avg_over_time(scrape_duration_seconds{%(selector)s}[10m]) > %(slowScrapeSeconds)d',
            'Scrapes of kstatd take long.',
            'A scrape of {{ $labels.instance }} takes {{ $value | humanizeDuration }}; beyond the time limit its metrics are lost.',
          ),
          alert(
            'MemoryNearLimit',
            'warning',
            '15m',
            |||
              max by (cluster, namespace, pod, container) (process_resident_memory_bytes{%(selector)s})
                / on (cluster, namespace, pod, container)
              max by (cluster, namespace, pod, container) (kube_pod_container_resource_limits{resource="memory"})
                > %(memoryShare)g
            |||,
            'kstatd is close to its memory limit.',
            '{{ $labels.namespace }}/{{ $labels.pod }} uses {{ $value | humanizePercentage }} of its memory limit; beyond it the process is killed.',
          ),
          alert(
            'SeriesGrowth',
            'warning',
            '10m',
            |||
              scrape_samples_scraped{%(selector)s} > %(growthFactor)g * (scrape_samples_scraped{%(selector)s} offset 1h)
                and
              scrape_samples_scraped{%(selector)s} - (scrape_samples_scraped{%(selector)s} offset 1h) > %(growthSeries)d
            |||,
            'kstatd has many more series than an hour ago.',
            '{{ $labels.instance }} has {{ $value | humanize }} samples a scrape, far more than an hour ago.',
          ),
          alert(
            'ConfigReloadFailed',
            'warning',
            '5m',
            |||
              kube_state_metrics_last_config_reload_successful{%(selector)s} == 0
                or
              kstatd_statsd_mapping_last_reload_successful{%(selector)s} == 0
            |||,
            'kstatd could not load a changed configuration file.',
            '{{ $labels.instance }} runs with an older configuration than its files{{ with $labels.filename }} ({{ . }}){{ end }}.',
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
            'time() - kstatd_kubernetes_last_heard_timestamp_seconds{%(selector)s} > %(staleSeconds)d',
            'kstatd has heard nothing of a kind for minutes.',
            '{{ $labels.instance }}: nothing came from the API server for {{ $labels.resource }}{{ with $labels.namespace }} in {{ . }}{{ end }} for {{ $value | humanizeDuration }}; its metrics are that old.',
          ),
          alert(
            'KindForbidden',
            'warning',
            '5m',
            'sum by (%(by)s, namespace, resource, reason) (increase(kstatd_kubernetes_errors_total{%(selector)s,reason=~"forbidden|unauthorized"}[10m])) > 0',
            'kstatd may not list a kind.',
            '{{ $labels.instance }}: the API server answers {{ $labels.reason }} for {{ $labels.resource }}{{ with $labels.namespace }} in {{ . }}{{ end }}. Its metrics go when --staleness-limit is over.',
          ),
          alert(
            'ListWatchErrors',
            'warning',
            '10m',
            'sum by (%(by)s, reason) (increase(kstatd_kubernetes_errors_total{%(selector)s,reason!~"forbidden|unauthorized|not_found|expired"}[10m])) > 5',
            'Lists and watches of kstatd fail.',
            '{{ $labels.instance }}: {{ $value | humanize }} lists and watches failed in 10 minutes, reason {{ $labels.reason }}.',
          ),
          alert(
            'MalformedObjects',
            'warning',
            null,
            |||
              increase(kstatd_kubernetes_malformed_objects_total{%(selector)s}[15m]) > 0
                or
              increase(kstatd_kubernetes_oversized_objects_total{%(selector)s}[15m]) > 0
            |||,
            'kstatd leaves objects out.',
            '{{ $labels.instance }}: objects of {{ $labels.resource }} could not be read, or have more series than a family may have. They have no metrics.',
          ),
          alert(
            'ShardMissing',
            'critical',
            '15m',
            |||
              count by (cluster, job) (count by (cluster, job, shard_ordinal) (kube_state_metrics_shard_ordinal{%(selector)s}))
                < max by (cluster, job) (kube_state_metrics_total_shards{%(selector)s})
                or
              max by (cluster, job) (kube_state_metrics_total_shards{%(selector)s})
                != min by (cluster, job) (kube_state_metrics_total_shards{%(selector)s})
            |||,
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
            'sum by (%(by)s) (rate(statsd_exporter_udp_packet_drops_total{%(selector)s}[5m])) > 0',
            'StatsD datagrams are lost.',
            '{{ $labels.instance }}: the kernel drops {{ $value | humanize }} datagrams a second, for the receive buffer is full.',
          ),
          alert(
            'StatsdRejects',
            'warning',
            '15m',
            |||
              sum by (%(by)s) (rate(kstatd_statsd_samples_total{%(selector)s,outcome!~"accepted|dropped_by_rule|no_event"}[10m]))
                / sum by (%(by)s) (rate(kstatd_statsd_samples_total{%(selector)s}[10m])) > %(rejectedShare)g
            |||,
            'StatsD samples are refused.',
            '{{ $labels.instance }} refuses {{ $value | humanizePercentage }} of its StatsD samples.',
          ),
          alert(
            'TypeConflict',
            'warning',
            null,
            'sum by (%(by)s, metric_name, type) (' + grew('statsd_exporter_events_conflict_total{%(selector)s}', '15m') + ')',
            'Two senders disagree about a StatsD metric.',
            '{{ $labels.instance }} refuses events of type {{ $labels.type }} for {{ $labels.metric_name }}: the metric exists as something else.',
          ),
          alert(
            'UnmappedShare',
            'info',
            '30m',
            |||
              sum by (%(by)s) (rate(statsd_exporter_events_unmapped_total{%(selector)s}[15m]))
                / sum by (%(by)s) (rate(statsd_exporter_events_total{%(selector)s}[15m])) > %(unmappedShare)g
                and on (%(by)s) statsd_exporter_loaded_mappings{%(selector)s} > 0
            |||,
            'No mapping rule matches many StatsD events.',
            '{{ $labels.instance }}: no rule matches {{ $value | humanizePercentage }} of the events.',
          ),
        ],
      },
    ],
  },
}
