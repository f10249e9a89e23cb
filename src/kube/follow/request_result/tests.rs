//! Tests of the conclusions from a body that fails.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn failed(error: ReadError, silence: Duration) -> RequestResult {
    let heard = Instant::now().checked_sub(silence).expect("a machine that runs for a while");
    RequestResult::body_failed(error, heard)
}

#[test]
fn a_long_silence_may_hide_another_server() {
    for (silence, outcome) in [
        (Duration::ZERO, Outcome::Broken { answered: true }),
        (DEAD - SECOND, Outcome::Broken { answered: true }),
        (DEAD, Outcome::Lost),
        (2 * DEAD, Outcome::Lost),
    ] {
        for (error, reason) in [
            (ReadError::Broken("reset".to_owned()), Reason::Broken),
            (ReadError::Dead("reset".to_owned()), Reason::Frozen),
        ] {
            let result = failed(error, silence);
            assert_eq!((&result.outcome, result.reason), (&outcome, Some(reason)), "{silence:?}");
            assert_eq!((&*result.message, result.dead_since), ("reset", None));
        }
        let result = failed(ReadError::Slow, silence);
        assert_eq!((&result.outcome, result.reason), (&outcome, Some(Reason::Slow)));
        assert!(result.dead_since.is_some(), "the connection is not used again");
    }
}

#[test]
fn a_watch_that_ends_late_is_dead_if_it_is_silent() {
    for silence in [Duration::ZERO, DEAD - SECOND] {
        let result = failed(ReadError::Overdue(silence), silence);
        assert_eq!((&result.outcome, result.reason), (&Outcome::Closed, None), "{silence:?}");
        assert_eq!(result.dead_since, None);
    }
    for silence in [DEAD, 2 * DEAD] {
        let result = failed(ReadError::Overdue(silence), silence);
        assert_eq!((&result.outcome, result.reason), (&Outcome::Lost, Some(Reason::Frozen)));
        assert!(result.dead_since.is_some(), "the connection is not used again");
    }
}

#[test]
fn a_stream_without_bookmarks_is_cut_and_its_connection_used_again() {
    let result = failed(ReadError::NoHeartbeat(SECOND), SECOND);
    assert_eq!((&result.outcome, result.is_cut), (&Outcome::Lost, true));
    assert_eq!(result.dead_since, None);
    let result = failed(ReadError::Silent(SECOND), SECOND);
    assert_eq!((result.reason, result.is_cut), (Some(Reason::Frozen), false));
    assert!(result.dead_since.is_some());
}

#[test]
fn refusals_have_a_backoff_of_their_own() {
    for (code, wanted) in [
        (400, Failure::Denied),
        (401, Failure::Transient),
        (403, Failure::Denied),
        (404, Failure::Absent),
        (408, Failure::Transient),
        (410, Failure::Transient),
        (422, Failure::Denied),
        (429, Failure::Transient),
        (499, Failure::Denied),
        (500, Failure::Transient),
    ] {
        assert_eq!(failure(&Outcome::Refused { code }), wanted, "{code}");
    }
    assert_eq!(failure(&Outcome::Closed), Failure::Transient);
}

#[test]
fn only_some_refusals_are_about_the_representation() {
    for (code, is_unsupported) in [(406, true), (415, true), (404, false), (500, false)] {
        let refusal = Refusal { code, message: "no".to_owned(), retry_after: Some(SECOND) };
        let result = RequestResult::from(refusal);
        assert_eq!(result.is_unsupported, is_unsupported, "{code}");
        assert_eq!((result.outcome, result.retry_after), (Outcome::Refused { code }, Some(SECOND)));
        assert_eq!(result.message, format!("server answers {code}: no"));
    }
}
