//! The least that a watch event can cost: decoding and rendering its object, in this process.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kstatd::cache::Rendered;
use kstatd::resources::{ObjectBytes, RenderOptions, find};

use super::data_set::DataSet;

/// Events whose objects are rendered in turn.
const EVENTS: u32 = 5_000;
/// Measuring time.
const WINDOW: Duration = Duration::from_secs(2);

/// Returns the mean CPU seconds to decode and render the object of an event.
pub fn event(data: DataSet, pods: u32) -> Result<f64> {
    let events = kstatd_double::events(&data.options(pods)?, EVENTS);
    let mut renderers = HashMap::new();
    for (resource, _) in &events {
        let found = find(resource).with_context(|| format!("there is no kind {resource}"))?;
        renderers.entry(*resource).or_insert_with(|| found.renderer(&RenderOptions::default()));
    }
    let mut rendered = Rendered::default();
    let (start, before, mut rounds) = (Instant::now(), thread_cpu()?, 0_u32);
    while start.elapsed() < WINDOW {
        for (resource, object) in &events {
            let renderer = renderers.get(resource).context("it was found above")?;
            renderer.render(ObjectBytes::Protobuf(black_box(object)), &mut rendered)?;
            black_box(rendered.lines.len());
        }
        rounds += 1;
    }
    Ok((thread_cpu()? - before) / f64::from(rounds) / events.len() as f64)
}

/// Returns the CPU seconds of this thread. Unlike wall-clock time, they exclude those of other programs.
fn thread_cpu() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse::<f64>()? * 1e-9)
}
