//! Places of what several sockets gave in one round.
//!
//! The input is in the order in which the sockets became ready. Of some of it the time of arrival is known; of the rest
//! it is known that it had come by some time, and that its socket became ready before those behind it. It knows times
//! alone.

use crate::statsd::receive::stamp::Stamp;

/// What is known of a time of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// It is this.
    At(Stamp),
    /// It is no later.
    Until(Stamp),
}

/// The place of each: what is known to have come by some time comes before whatever became ready after it.
pub(crate) fn places(
    keys: impl DoubleEndedIterator<Item = Key> + ExactSizeIterator,
) -> impl Iterator<Item = Stamp> {
    let mut bound = Stamp::MAX;
    let mut places: Vec<Stamp> = keys
        .rev()
        .map(|key| {
            let place = match key {
                Key::At(stamp) => stamp,
                Key::Until(stamp) => stamp.min(bound),
            };
            bound = bound.min(place);
            place
        })
        .collect();
    places.reverse();
    places.into_iter()
}

#[cfg(test)]
mod tests {
    use super::Key::{At, Until};
    use super::*;

    #[test]
    fn known_times_are_kept_and_the_rest_comes_before_what_was_ready_later() {
        let placed = |keys: &[Key]| places(keys.iter().copied()).collect::<Vec<_>>();
        let at = Stamp::at;
        assert_eq!(placed(&[At(at(5)), At(at(3))]), [at(5), at(3)]);
        assert_eq!(placed(&[Until(at(9)), At(at(3))]), [at(3), at(3)], "it was ready first");
        assert_eq!(placed(&[At(at(3)), Until(at(9))]), [at(3), at(9)]);
        assert_eq!(placed(&[Until(at(2)), At(at(3))]), [at(2), at(3)]);
        assert_eq!(
            placed(&[Until(at(9)), Until(at(7)), At(at(4)), Until(at(8))]),
            [at(4), at(4), at(4), at(8)]
        );
        assert!(placed(&[]).is_empty());
    }
}
