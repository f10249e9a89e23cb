//! The answers of other replicas (`--standby`) and of other pods of a StatefulSet (`--pod`): rejected with a reason, or
//! applied, with valid series; and a replica whose peer no longer answers exposes its metrics, whatever it answered before.
//!
//! The first byte selects raw answers, answers with a valid head, or own metrics of a pod.
#![no_main]

use bytes::Bytes;
use kstatd::fuzzed;
use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../tests/support/exposition.rs"]
mod exposition;

/// Returns an answer with these lines, whose numbers and states are taken from its first bytes.
fn answer(input: &[u8]) -> Bytes {
    let (head, text) = input.split_at(input.len().min(8));
    let byte = |index: usize| u64::from(head.get(index).copied().unwrap_or_default());
    let mut text = text.to_vec();
    if !text.is_empty() {
        text.push(b'\n');
    }
    let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    // Small numbers, and some at the end of the range.
    let first = if byte(0) == 255 { u64::MAX - lines } else { byte(0) };
    let next = first + lines;
    let active_since = if byte(1) & 1 == 1 { byte(2).to_string() } else { "null".to_owned() };
    let flag = |bit: u32| byte(1) >> bit & 1 == 1;
    let mut answer = format!(
        "{{\"protocol\":{},\"replica\":{{\"id\":{},\"group\":\"0/{}\",\"started\":{},\"active_since\":{active_since},\
         \"synced\":{},\"leaving\":{},\"later\":1}},\"version\":{},\"first\":{first},\"next\":{next}}}\n",
        1 + u64::from(flag(4)),
        byte(3) % 4,
        1 + u64::from(flag(3)),
        byte(4),
        flag(1),
        flag(2),
        byte(5),
    )
    .into_bytes();
    answer.extend(text);
    Bytes::from(answer)
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, body)) = data.split_first() else { return };
    if how & 3 == 3 {
        let Ok(text) = std::str::from_utf8(body) else { return };
        let stage = fuzzed::stage_from_metrics(text, 3);
        assert!(stage.is_none_or(|stage| (-1..=3).contains(&stage)));
        let later = format!("# HELP a b\na_kstatd_kubernetes_shard_stage{{total=\"3\"}} 1\n{text}");
        assert_eq!(fuzzed::stage_from_metrics(&later, 3), stage, "other lines have no effect");
        return;
    }
    let parts = body.split(|byte| *byte == 0);
    let answers: Vec<Bytes> = match how & 1 {
        0 => parts.map(Bytes::copy_from_slice).collect(),
        _ => parts.map(answer).collect(),
    };
    let (rejected, applied, series) = fuzzed::standby_peer(&answers);
    assert!(rejected <= answers.len());
    let lines = answers.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
    assert!(applied <= lines, "{applied} of {lines} lines");
    assert_eq!(exposition::check_text(&series), Ok(()), "{series}");
});
