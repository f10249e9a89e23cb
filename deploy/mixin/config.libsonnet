// The settings of the mixin.
{
  _config+:: {
    // The repository, as in `home` of deploy/helm/kstatd/Chart.yaml.
    home: 'https://github.com/kstatd/kstatd',
    // Targets of kstatd, for metrics that other programs have too (`up`, `scrape_*`, `process_*`, and those of the originals):
    // jobs named after kstatd or, after a swap, after an original, such as kube-state-metrics or monitoring/kstatd.
    selector: 'job=~"(.+[/_-])?(kstatd|kube-state-metrics|statsd[-_]exporter)([/_-].+)?"',
    // The same, selected by the label that discovery through annotations copies from the Service, if one job scrapes everything.
    labelSelector: 'app_kubernetes_io_name=~"kstatd|kube-state-metrics|prometheus-statsd-exporter"',
    // Restricts kstatd_* metrics, for example to one environment: 'env="prod",'. Empty, or with a comma at the end.
    ownSelector: '',
    // Labels that identify a process. `cluster` may be absent.
    by: 'cluster, job, instance',
    // URL of a runbook page; %s is the name of the alert.
    runbookUrlPattern: self.home + '/blob/main/docs/runbook/%s.md',
    dashboardTags: ['kstatd'],
    // Each watch gets a bookmark about once a minute, and is reopened without one for 150 s.
    staleSeconds: 120,
    // Half of Prometheus' default scrape timeout.
    slowScrapeSeconds: 5,
    // Incomplete scrapes of one scraper in 15 minutes: more than a command that was interrupted.
    incompleteScrapes: 2,
    // Share of the memory limit.
    memoryShare: 0.9,
    // Share of rejected samples.
    rejectedShare: 0.01,
    // Share of events that match no mapping rule.
    unmappedShare: 0.2,
    // Growth of one target within an hour: as a factor, and in series, which excludes small targets.
    growthFactor: 1.5,
    growthSeries: 10000,
    // Usage of a node's system process (`kstatd node`): as a factor of last week's mean over all nodes, and the least usage
    // that counts: cores, bytes of disk IO a second, context switches a second.
    usageFactor: 10,
    usageCores: 0.1,
    usageDiskBytes: 1e6,
    usageSwitches: 1000,
    // Share of time in which all tasks of a node wait for IO or memory.
    pressureShare: 0.2,
  },
}
