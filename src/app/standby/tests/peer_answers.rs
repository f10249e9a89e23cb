//! Any answers of another replica, for a test and a fuzz target.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::super::answer::PollQuery;
use super::super::election::START_GRACE;
use super::super::polling::{FirstPoll, fail, receive};
use super::super::state::{Peer, Shared, Standby};
use crate::statsd::Pipeline;

/// The outcome of a sequence of answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The error of each answer that was rejected.
    pub(crate) errors: Vec<String>,
    /// The number of lines that were applied.
    pub(crate) applied: u64,
    /// The number of lines that were missed.
    pub(crate) lost: u64,
    /// True if this replica exposed its metrics after the last answer.
    pub(crate) is_active: bool,
}

/// Takes the answers of one address in order. A rejected answer counts as none.
///
/// # Panics
///
/// Panics if this replica does not expose its metrics once the other one no longer answers.
pub(crate) async fn take(answers: &[Bytes], lines: Option<Arc<Pipeline>>) -> Outcome {
    let shared = Shared::new("0/1".to_owned(), Duration::from_secs(1), None, lines);
    let standby = Standby(Arc::new(shared));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let own = {
        let mut state = standby.lock();
        state.peers.insert(address, Peer::unasked());
        state.unresolved = Some(BTreeMap::new());
        state.election.own.id
    };
    let mut poll = PollQuery { from: own, ..PollQuery::default() };
    let (mut first_poll, mut outcome) = (FirstPoll::default(), Outcome::default());
    for answer in answers {
        if let Err(error) = receive(&standby, address, answer, &mut poll, &mut first_poll).await {
            let _ = fail(&standby, address, error.clone());
            outcome.errors.push(error);
        }
        standby.change(|own| own.synced = true);
    }
    outcome.is_active = standby.is_active();
    outcome.applied = standby.0.received.get();
    outcome.lost = standby.0.lost.get();
    sleep(START_GRACE).await;
    let _ = fail(&standby, address, "no answer".to_owned());
    standby.change(|_| ());
    assert!(standby.is_active(), "another replica no longer answers, and this one stays a standby");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of a replica that was started before this one.
    fn answer(id: u64, active: bool, lines: std::ops::Range<u64>, text: &str) -> Bytes {
        let active = if active { "1" } else { "null" };
        let std::ops::Range { start, end } = lines;
        Bytes::from(format!(
            "{{\"protocol\":1,\"replica\":{{\"id\":{id},\"group\":\"0/1\",\"started\":1,\"active_since\":{active},\
             \"synced\":true,\"leaving\":false}},\"version\":1,\"first\":{start},\"next\":{end}}}\n{text}"
        ))
    }

    /// Adds the number of the first line since the start of the replica that polls.
    fn since(start: u64, answer: &Bytes) -> Bytes {
        let text = String::from_utf8(answer.to_vec()).expect("UTF-8");
        text.replacen("}\n", &format!(",\"start\":{start}}}\n"), 1).into()
    }

    #[tokio::test(start_paused = true)]
    async fn answers_decide_until_they_cease() {
        for (answers, is_active, lost) in [
            (vec![answer(7, true, 0..0, "")], false, 0),
            (vec![answer(7, true, 0..0, ""), Bytes::from("{}\n")], true, 0),
            // Lines that were missed, and lines whose numbers go back.
            (vec![answer(7, true, 4..4, ""), answer(7, true, 9..10, "a:1|c\n")], false, 5),
            (vec![answer(7, true, 9..9, ""), answer(7, true, 1..2, "a:1|c\n")], false, 0),
            (vec![answer(7, true, u64::MAX..u64::MAX, ""), answer(7, true, 0..0, "")], false, 0),
            // Lines from before the first answer, which says where they begin, and a replica that comes back at the address.
            (
                vec![since(1, &answer(7, true, 4..4, "")), answer(7, true, 3..4, "a:1|c\n")],
                false,
                2,
            ),
            (
                vec![
                    answer(7, true, 4..4, ""),
                    answer(8, true, 0..0, ""),
                    since(0, &answer(7, true, 9..9, "")),
                    answer(7, true, 6..7, "a:1|c\n"),
                ],
                false,
                2,
            ),
            // Another process at the same address.
            (vec![answer(7, true, 5..5, ""), answer(8, false, 0..1, "a:1|c\n")], false, 0),
        ] {
            let outcome = take(&answers, None).await;
            assert_eq!((outcome.is_active, outcome.lost), (is_active, lost), "{answers:?}");
        }
    }
}
