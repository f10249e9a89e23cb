//! Real and virtual shards of a large cluster.

use anyhow::Result;

use super::data_set::DataSet;
use super::kube::{Cluster, Cost, Listed, Subject, scrape_cost};
use super::programs::Programs;
use super::rows::Size;
use super::table::{bytes, count, plain, seconds};

const SHARDS: u32 = 4;

/// Compares one of four shards with an unsharded process, whose responses are divided by its clients or not. A real shard
/// receives every object and keeps a quarter of them.
pub fn shards(programs: &Programs, size: Size) -> Result<String> {
    let pods = if size.quick { 10_000 } else { 100_000 };
    let cluster = Cluster::new(pods, DataSet::Synthetic)?;
    let mut rows = Vec::new();
    for (who, name) in [(Subject::Ours, "kstatd"), (Subject::Peer, "kube-state-metrics")] {
        let total = format!("--total-shards={SHARDS}");
        for (flags, share) in [(&[][..], "unsharded"), (&["--shard=1", &total], "shard 1 of 4")] {
            let listed = cluster.list_with(who, programs, flags)?;
            let name = format!("{name}, {share} ({} pods)", count(f64::from(pods)));
            rows.push(row(&cluster, &listed, name, &["/metrics".to_owned()], size)?);
        }
    }
    let listed = cluster.list(Subject::Ours, programs)?;
    let paths: Vec<_> =
        (0..SHARDS).map(|shard| format!("/metrics?shard={shard}&total_shards={SHARDS}")).collect();
    rows.push(row(&cluster, &listed, "kstatd, 4 virtual shards".to_owned(), &paths, size)?);
    drop((listed, cluster));
    let cluster = Cluster::new(pods / SHARDS, DataSet::Synthetic)?;
    let listed = cluster.list(Subject::Ours, programs)?;
    let name = "kstatd, if the API server sent a quarter only".to_owned();
    rows.push(row(&cluster, &listed, name, &["/metrics".to_owned()], size)?);
    let head = [
        "Process",
        "Text",
        "Time / CPU to ready",
        "Memory, listed / scraped",
        "One scrape, wall / CPU",
        "CPU of one event (500/s)",
    ];
    Ok(plain(&head, &rows))
}

/// Measures a process that is scraped at these paths in turn.
fn row(
    cluster: &Cluster,
    listed: &Listed,
    name: String,
    paths: &[String],
    size: Size,
) -> Result<Vec<String>> {
    let before = listed.server.memory()?;
    let mut sum = Cost::default();
    for path in paths {
        let cost = scrape_cost(&listed.server, listed.port, path, false, 3)?;
        sum.wall += cost.wall / paths.len() as f64;
        sum.cpu += cost.cpu / paths.len() as f64;
        sum.bytes += cost.bytes / paths.len() as f64;
    }
    let after = listed.server.memory()?;
    let event = cluster.event_cost(listed, 500.0, size.window)?;
    Ok(vec![
        name,
        bytes(sum.bytes),
        format!("{} / {}", seconds(listed.ready), seconds(listed.cpu)),
        format!(
            "{} ({} peak) / {}",
            bytes(before.resident),
            bytes(before.peak),
            bytes(after.resident)
        ),
        format!("{} / {}", seconds(sum.wall), seconds(sum.cpu)),
        seconds(event),
    ])
}
