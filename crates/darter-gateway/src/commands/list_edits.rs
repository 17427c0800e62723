//! The edits of list commands, which are applied to a chunk of the elements after the other.

use crate::keyspace::{Edit, Edited, End, ListElements, part};

/// Sets the element at an index.
#[derive(Clone, Debug)]
pub(super) struct Set<'a> {
    from: End,
    /// The elements between the end and the one to set, that were not seen yet.
    before: usize,
    element: &'a [u8],
    pub(super) is_done: bool,
}

impl<'a> Set<'a> {
    pub(super) fn new(from: End, at: usize, element: &'a [u8]) -> Self {
        Self { from, before: at, element, is_done: false }
    }
}

impl Edit for Set<'_> {
    fn apply<'e>(&mut self, elements: &mut ListElements<'e>) -> Edited
    where
        Self: 'e,
    {
        let count = elements.len();
        if self.before >= count {
            self.before -= count;
            return Edited { is_changed: false, goes_on: true };
        }
        let at = if self.from == End::Left { self.before } else { count - 1 - self.before };
        elements[at] = self.element;
        self.is_done = true;
        Edited { is_changed: true, goes_on: false }
    }
}

/// Inserts an element before or after the first element that is equal to another one.
#[derive(Clone, Debug)]
pub(super) struct Insert<'a> {
    is_after: bool,
    pivot: &'a [u8],
    element: &'a [u8],
    pub(super) is_done: bool,
}

impl<'a> Insert<'a> {
    pub(super) fn new(is_after: bool, pivot: &'a [u8], element: &'a [u8]) -> Self {
        Self { is_after, pivot, element, is_done: false }
    }
}

impl Edit for Insert<'_> {
    fn apply<'e>(&mut self, elements: &mut ListElements<'e>) -> Edited
    where
        Self: 'e,
    {
        if let Some(at) = elements.iter().position(|element| *element == self.pivot) {
            elements.insert(at + usize::from(self.is_after), self.element);
            self.is_done = true;
        }
        Edited { is_changed: self.is_done, goes_on: !self.is_done }
    }
}

/// Removes elements that are equal to one.
#[derive(Clone, Debug)]
pub(super) struct Strip<'a> {
    from: End,
    /// Elements that may still be removed.
    left: usize,
    element: &'a [u8],
    pub(super) removed: usize,
}

impl<'a> Strip<'a> {
    pub(super) fn new(from: End, most: usize, element: &'a [u8]) -> Self {
        Self { from, left: most, element, removed: 0 }
    }
}

impl Edit for Strip<'_> {
    fn apply<'e>(&mut self, elements: &mut ListElements<'e>) -> Edited
    where
        Self: 'e,
    {
        let before = elements.len();
        let mut stays = |element: &[u8]| {
            let goes = self.left > 0 && element == self.element;
            self.left -= usize::from(goes);
            !goes
        };
        if self.from == End::Left {
            elements.retain(|element| stays(element));
        } else {
            let mut kept = ListElements::with_capacity(before);
            while let Some(element) = elements.pop_back() {
                if stays(element) {
                    kept.push_front(element);
                }
            }
            *elements = kept;
        }
        self.removed += before - elements.len();
        Edited { is_changed: elements.len() < before, goes_on: self.left > 0 }
    }
}

/// Keeps the elements from one index to another. It is applied to all elements at once.
#[derive(Clone, Debug)]
pub(super) struct Trim {
    start: i64,
    stop: i64,
}

impl Trim {
    pub(super) fn new(start: i64, stop: i64) -> Self {
        Self { start, stop }
    }

    /// Returns how many elements of a list of this length go on the left and on the right.
    pub(super) fn excess(&self, length: usize) -> (usize, usize) {
        match part(length, self.start, self.stop) {
            (_, 0) => (length, 0),
            (before, count) => (before, length - before - count),
        }
    }
}

impl Edit for Trim {
    fn apply<'e>(&mut self, elements: &mut ListElements<'e>) -> Edited
    where
        Self: 'e,
    {
        let (left, right) = self.excess(elements.len());
        elements.truncate(elements.len() - right);
        elements.drain(..left);
        Edited { is_changed: left + right > 0, goes_on: false }
    }
}

/// Moves an element from an end to an end. It is applied to all elements at once.
#[derive(Clone, Debug)]
pub(super) struct Rotate {
    from: End,
    to: End,
    pub(super) moved: Option<Vec<u8>>,
}

impl Rotate {
    pub(super) fn new(from: End, to: End) -> Self {
        Self { from, to, moved: None }
    }
}

impl Edit for Rotate {
    fn apply<'e>(&mut self, elements: &mut ListElements<'e>) -> Edited
    where
        Self: 'e,
    {
        let element = if self.from == End::Left { elements.pop_front() } else { elements.pop_back() };
        if let Some(element) = element {
            self.moved = Some(element.to_vec());
            if self.to == End::Left { elements.push_front(element) } else { elements.push_back(element) }
        }
        Edited { is_changed: self.from != self.to && elements.len() > 1, goes_on: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited<E: Edit + 'static>(edit: &mut E, elements: &[&'static str]) -> (String, Edited) {
        let mut all: ListElements<'static> = elements.iter().map(|element| element.as_bytes()).collect();
        let edited = edit.apply(&mut all);
        (String::from_utf8(all.make_contiguous().join(&b' ')).unwrap(), edited)
    }

    #[test]
    fn edits_continue_in_the_next_chunk() {
        let mut strip = Strip::new(End::Right, 3, b"x");
        assert_eq!(edited(&mut strip, &["x", "a", "x"]).0, "a");
        assert_eq!(
            edited(&mut strip, &["x", "b", "x"]),
            ("x b".to_owned(), Edited { is_changed: true, goes_on: false })
        );
        assert_eq!(strip.removed, 3);
        let mut set = Set::new(End::Right, 3, b"new");
        assert_eq!(
            edited(&mut set, &["a", "b"]),
            ("a b".to_owned(), Edited { is_changed: false, goes_on: true })
        );
        assert_eq!(edited(&mut set, &["a", "b", "c"]).0, "a new c");
        assert!(set.is_done);
        let mut insert = Insert::new(true, b"p", b"new");
        assert!(edited(&mut insert, &["a", "b"]).1.goes_on);
        assert_eq!(edited(&mut insert, &["p", "p"]).0, "p new p");
    }

    #[test]
    fn all_elements_are_trimmed_and_rotated() {
        for (start, stop, expected) in
            [(1, 2, "b c"), (0, -1, "a b c d"), (-2, -1, "c d"), (3, 1, ""), (9, 9, "")]
        {
            assert_eq!(
                edited(&mut Trim::new(start, stop), &["a", "b", "c", "d"]).0,
                expected,
                "{start} {stop}"
            );
        }
        let mut rotate = Rotate::new(End::Right, End::Left);
        assert_eq!(edited(&mut rotate, &["a", "b", "c"]).0, "c a b");
        assert_eq!(rotate.moved.as_deref(), Some(&b"c"[..]));
        assert!(!edited(&mut Rotate::new(End::Left, End::Left), &["a", "b"]).1.is_changed);
    }
}
