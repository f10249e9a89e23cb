//! Tests of the durations of watches.

use super::*;

fn request(is_shared: bool, streaming: bool, seconds: u64) -> WatchRequest {
    WatchRequest { opened: Instant::now(), seconds, is_shared, streaming, has_bookmarks: true }
}

/// A watch with a connection to itself is ended in time to notice that the connection is dead.
#[test]
fn the_client_ends_long_watches_over_their_own_connection() {
    // With the eighth by which a short watch may be longer, and a second for the end of the server.
    let timing = Timing { watch_cycle: Duration::from_secs(36), ..Timing::default() };
    for (seconds, is_long) in [(1, false), (36, false), (41, false), (42, true), (600, true)] {
        assert_eq!(request(false, false, seconds).ends_by_client(&timing), is_long, "{seconds} s");
        assert!(request(false, true, seconds).ends_by_client(&timing));
        for streaming in [false, true] {
            assert!(!request(true, streaming, seconds).ends_by_client(&timing));
            // Without bookmarks, the server ends a watch in time, but not a streaming list.
            let unmarked =
                WatchRequest { has_bookmarks: false, ..request(true, streaming, seconds) };
            assert_eq!(unmarked.ends_by_client(&timing), streaming);
        }
    }
}

#[test]
fn the_last_bookmark_comes_within_ten_seconds_of_the_end() {
    let opened = Instant::now().checked_sub(Duration::from_secs(100));
    let opened = opened.expect("a machine that runs for a while");
    for (seconds, ends_soon) in [(90, true), (110, true), (150, false), (600, false)] {
        let request = WatchRequest { opened, ..request(true, false, seconds) };
        assert_eq!(request.ends_soon(), ends_soon, "{seconds} s");
    }
}
