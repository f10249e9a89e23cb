// What a site may want to change; everything else of the mixin refers to it.
{
  _config+:: {
    // Which targets are kstatd's. Both ports of all its names, so a pattern.
    selector: 'job=~"kstatd.*"',
    // Labels that tell one process from another. Targets without `cluster` have it empty.
    by: 'cluster, job, instance',
    // Where the pages of the runbook are; %s is the alert. A site puts the address before it where it shows this repository.
    runbookUrlPattern: 'docs/runbook/%s.md',
    dashboardTags: ['kstatd'],
    // Watches end and begin anew every 36 s (41 s at most), so each kind is heard of at least that often.
    staleSeconds: 120,
    // Half of Prometheus' usual time limit for a scrape.
    slowScrapeSeconds: 5,
    // Share of the memory limit.
    memoryShare: 0.9,
    // Share of samples that are refused.
    rejectedShare: 0.01,
    // Share of events that no rule of a mapping matches.
    unmappedShare: 0.2,
    // Growth of one target within an hour: as a factor, and in series so that small targets are left alone.
    growthFactor: 1.5,
    growthSeries: 10000,
  },
}
