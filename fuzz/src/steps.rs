//! The steps that an input consists of.

use arbitrary::{Arbitrary, Result, Unstructured};

/// Most steps of an input, so that none takes long.
const STEPS_MAX: usize = 100;

/// As many steps as the input has bytes for. A `Vec` would ask before each whether there is one more, and end after
/// two mostly.
#[derive(Debug)]
pub struct Steps<T>(Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Steps<T> {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Steps<T>> {
        let mut steps = Vec::new();
        while !input.is_empty() && steps.len() < STEPS_MAX {
            steps.push(input.arbitrary()?);
        }
        Ok(Steps(steps))
    }
}

impl<T> IntoIterator for Steps<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
