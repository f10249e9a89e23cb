//! Cost per kind of decoding an object, rendering it and caching the result: the original with its benchmark in
//! tests/peers, kstatd in this process, with the same bytes.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kstatd::cache::{Rendered, Store};
use kstatd::resources::select::filter::FamilyFilter;
use kstatd::resources::select::selection::Selection;
use kstatd::resources::{ObjectBytes, RenderOptions, find};

use super::programs::Programs;
use super::table::{plain, seconds};

/// Measuring time for each kind.
const WINDOW: Duration = Duration::from_millis(100);
/// Objects recorded from the original's tests, and random ones.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/ksm");

/// Returns one row for each kind.
pub fn kinds(programs: &Programs) -> Result<String> {
    let objects = programs.scratch.join("kinds");
    fs::create_dir_all(&objects)?;
    let output = Command::new(&programs.kind_bench).arg(CASES).arg(&objects).output()?;
    if !output.status.success() {
        bail!("kindbench: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[resource, count, decode, generate] = fields.as_slice() else {
            bail!("kindbench printed {line:?}");
        };
        let decode = decode.parse::<f64>()? * 1e-9;
        let generate = generate.parse::<f64>()? * 1e-9;
        let ours = ours(resource, &objects).with_context(|| resource.to_owned())?;
        rows.push(vec![
            resource.to_owned(),
            count.to_owned(),
            format!("{} + {}", seconds(decode), seconds(generate)),
            seconds(ours),
            format!("1/{:.1}", (decode + generate) / ours),
        ]);
    }
    let head =
        ["Kind", "Objects", "kube-state-metrics: decode + generate", "kstatd: both", "Ratio"];
    Ok(plain(&head, &rows))
}

/// Returns the mean seconds for one object: decoded, rendered with all families, and cached.
fn ours(resource: &str, folder: &Path) -> Result<f64> {
    let options = RenderOptions {
        labels: Selection::default(),
        annotations: Selection::default(),
        families: Arc::new(FamilyFilter::new(&[], &[], &[".*".to_owned()])?),
        keep_duplicates: false,
        ..RenderOptions::default()
    };
    let renderer = find(resource).context("there is no such resource")?.renderer(&options);
    let store = Store::new(renderer.schema());
    let file = fs::read(folder.join(format!("{resource}.bin")))?;
    let objects = messages(&file)?;
    let mut rendered = Rendered::default();
    let mut rounds = 0_u32;
    let start = Instant::now();
    while start.elapsed() < WINDOW {
        for object in &objects {
            renderer.render(ObjectBytes::Protobuf(black_box(object)), &mut rendered)?;
            store.apply(&rendered);
        }
        rounds += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(rounds) / objects.len() as f64)
}

/// Splits a file of length-prefixed messages.
fn messages(mut file: &[u8]) -> Result<Vec<&[u8]>> {
    let mut found = Vec::new();
    while let Some((len, rest)) = file.split_first_chunk() {
        let len = u32::from_le_bytes(*len) as usize;
        let (message, rest) = rest.split_at_checked(len).context("a message is cut off")?;
        found.push(message);
        file = rest;
    }
    Ok(found)
}
