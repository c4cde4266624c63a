//! Requests of clients, with the responses that are right, and the mix in which they are sent.

use std::sync::Arc;

use crate::random::Random;

/// Body of a response that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Any bytes. Without HTTP, the response then lasts until the program ends the connection.
    Any,
    /// Any bytes, of this number.
    Length(u64),
    /// These bytes.
    Bytes(Arc<[u8]>),
}

impl Body {
    /// Makes a body of bytes.
    pub fn bytes(bytes: impl Into<Arc<[u8]>>) -> Body {
        Body::Bytes(bytes.into())
    }

    /// Returns the number of bytes, if that is known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            Body::Any => None,
            Body::Length(length) => Some(*length),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
        }
    }
}

/// Form of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// HTTP/1.1, with a head.
    Http {
        /// Status that is right.
        status: u16,
        /// True for the response to HEAD, which has no body.
        is_head: bool,
    },
    /// Nothing but the body.
    Raw,
}

/// Bytes that a client sends, and the response that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name in messages.
    name: String,
    /// Bytes; of HTTP, those before the empty line that ends the head.
    bytes: Vec<u8>,
    /// Form of the response.
    pub(super) form: Form,
    /// Body of the response.
    pub(super) body: Body,
}

impl Request {
    /// Makes the request `GET` of HTTP/1.1 for a path. Right is the status 200 with any body.
    pub fn get(path: &str) -> Request {
        Request::http("GET", path)
    }

    /// Makes the request `HEAD` of HTTP/1.1 for a path. Right is the status 200; the body is not sent, and its length is
    /// compared with the field `Content-Length`.
    pub fn head(path: &str) -> Request {
        let form = Form::Http { status: 200, is_head: true };
        Request { form, ..Request::http("HEAD", path) }
    }

    /// Makes a request of HTTP/1.1 of any method for a path. Right is the status 200 with any body.
    pub fn http(method: &str, path: &str) -> Request {
        Request {
            name: format!("{method} {path}"),
            bytes: format!("{method} {path} HTTP/1.1\r\nHost: simulated\r\n").into_bytes(),
            form: Form::Http { status: 200, is_head: false },
            body: Body::Any,
        }
    }

    /// Makes a request of bytes that are not HTTP, whose response is a body and nothing else.
    pub fn raw(name: &str, bytes: impl Into<Vec<u8>>, body: Body) -> Request {
        Request { name: name.into(), bytes: bytes.into(), form: Form::Raw, body }
    }

    /// Adds a field to the head, such as `Range: bytes=0-99`. Requests that are not HTTP stay as they are.
    pub fn field(mut self, field: &str) -> Request {
        if self.form != Form::Raw {
            self.bytes.extend(format!("{field}\r\n").into_bytes());
        }
        self
    }

    /// Sets the status that is right. Requests that are not HTTP stay as they are.
    pub fn status(mut self, wanted: u16) -> Request {
        if let Form::Http { status, .. } = &mut self.form {
            *status = wanted;
        }
        self
    }

    /// Sets the body that is right.
    pub fn body(mut self, body: Body) -> Request {
        self.body = body;
        self
    }

    /// Returns the name in messages: method and path, or the one of [`Request::raw`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the bytes to send. `is_last` tells that the connection ends with the response.
    pub(super) fn encoded(&self, is_last: bool) -> Vec<u8> {
        let end: &[u8] = match self.form {
            Form::Raw => b"",
            Form::Http { .. } if is_last => b"Connection: close\r\n\r\n",
            Form::Http { .. } => b"\r\n",
        };
        [&self.bytes, end].concat()
    }
}

/// Order in which a mix's requests are chosen.
#[derive(Clone, Debug, PartialEq)]
enum Choice {
    /// Each once, in order.
    Once,
    /// In order, and from the beginning again.
    InOrder,
    /// At random, each with the probability that the sums of the shares up to it tell; the last sum is 1.
    Random(Vec<f64>),
    /// At random: with a probability the next of the last requests, in order, otherwise one of the first.
    Misses {
        /// Number of the first requests.
        hits: usize,
        /// Probability of one of the others.
        share: f64,
    },
}

/// Requests that clients send, with the order in which they are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Requests.
    requests: Vec<Request>,
    /// Order.
    choice: Choice,
    /// Number of the next request of those that come in order.
    next: usize,
}

impl Mix {
    /// Makes a mix in which each request is sent once, in order; then the clients have ended.
    pub fn once(requests: impl IntoIterator<Item = Request>) -> Mix {
        Mix::new(requests, Choice::Once)
    }

    /// Makes a mix of requests in order, again and again.
    pub fn in_order(requests: impl IntoIterator<Item = Request>) -> Mix {
        Mix::new(requests, Choice::InOrder)
    }

    /// Makes a mix of requests at random, all alike.
    pub fn uniform(requests: impl IntoIterator<Item = Request>) -> Mix {
        Mix::weighted(requests.into_iter().map(|request| (1.0, request)))
    }

    /// Makes a mix of requests at random, each with its weight. Weights that are negative or not finite count as 0.
    pub fn weighted(requests: impl IntoIterator<Item = (f64, Request)>) -> Mix {
        let (mut sums, mut sum) = (Vec::new(), 0.0);
        let requests: Vec<Request> = requests
            .into_iter()
            .map(|(weight, request)| {
                sum += if weight.is_finite() { weight.max(0.0) } else { 0.0 };
                sums.push(sum);
                request
            })
            .collect();
        sums.iter_mut().for_each(|one| *one /= sum);
        Mix::new(requests, Choice::Random(sums))
    }

    /// Makes a mix with a share of misses, between 0 and 1: the `misses` are requested in order, so that a cache for
    /// fewer files than these has evicted each before its turn comes again; the `hits` at random, all alike.
    pub fn with_misses(
        hits: impl IntoIterator<Item = Request>,
        misses: impl IntoIterator<Item = Request>,
        share: f64,
    ) -> Mix {
        let mut requests: Vec<Request> = hits.into_iter().collect();
        let hits = requests.len();
        requests.extend(misses);
        Mix { next: hits, ..Mix::new(requests, Choice::Misses { hits, share }) }
    }

    /// Makes a mix.
    fn new(requests: impl IntoIterator<Item = Request>, choice: Choice) -> Mix {
        Mix { requests: requests.into_iter().collect(), choice, next: 0 }
    }

    /// Returns the reason for which no request can be chosen; `None` if one can.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let count = self.requests.len();
        match &self.choice {
            _ if count == 0 => Some("the mix has no requests; give it some"),
            Choice::Random(sums) if sums.last().is_none_or(|sum| !sum.is_finite()) => {
                Some("the weights of the mix are all 0; raise one")
            }
            Choice::Misses { share, .. } if !(0.0..=1.0).contains(share) => {
                Some("the share of misses is not between 0 and 1; correct it")
            }
            Choice::Misses { hits: 0, share } if *share < 1.0 => {
                Some("the mix has no hits; give it some, or make the share of misses 1")
            }
            Choice::Misses { hits, share } if *hits == count && *share > 0.0 => {
                Some("the mix has no misses; give it some, or make their share 0")
            }
            _ => None,
        }
    }

    /// Chooses the next request, and returns its number; `None` if all were sent. [`Mix::fault`] has found nothing.
    pub(super) fn choose(&mut self, random: &mut Random) -> Option<usize> {
        let count = self.requests.len();
        match &self.choice {
            Choice::Once if self.next >= count => None,
            Choice::Random(sums) => {
                let chosen = random.unit_interval();
                Some(sums.partition_point(|&sum| sum < chosen).min(count - 1))
            }
            Choice::Misses { hits, share } if random.unit_interval() > *share => {
                Some(random.below(*hits as u64) as usize)
            }
            choice => {
                let (chosen, begin) =
                    (self.next, if let Choice::Misses { hits, .. } = choice { *hits } else { 0 });
                self.next += 1;
                if self.next == count && *choice != Choice::Once {
                    self.next = begin;
                }
                Some(chosen)
            }
        }
    }

    /// Returns whether all requests were chosen, and none is chosen again.
    pub(super) fn is_exhausted(&self) -> bool {
        self.choice == Choice::Once && self.next >= self.requests.len()
    }

    /// Returns a request by its number.
    pub(super) fn request(&self, number: usize) -> &Request {
        &self.requests[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(count: usize) -> Vec<Request> {
        (0..count).map(|number| Request::get(&format!("/{number}"))).collect()
    }

    /// Returns how often each of four requests is chosen in many draws.
    fn counts(mut mix: Mix) -> [f64; 4] {
        assert_eq!(mix.fault(), None);
        let mut random = Random::new(9);
        let mut counts = [0.0; 4];
        for _ in 0..100_000 {
            counts[mix.choose(&mut random).unwrap()] += 1e-5;
        }
        counts
    }

    #[test]
    fn requests_come_in_the_shares_of_their_mix() {
        let weights = [1.0, 0.0, f64::NAN, 3.0];
        for (mix, shares) in [
            (Mix::uniform(requests(4)), [0.25; 4]),
            (Mix::in_order(requests(4)), [0.25; 4]),
            (Mix::weighted(weights.into_iter().zip(requests(4))), [0.25, 0.0, 0.0, 0.75]),
            (Mix::with_misses(requests(2), requests(2), 0.2), [0.4, 0.4, 0.1, 0.1]),
            (Mix::with_misses([], requests(4), 1.0), [0.25; 4]),
        ] {
            let found = counts(mix.clone());
            for (found, share) in found.into_iter().zip(shares) {
                assert!((found - share).abs() < 0.01, "{found} instead of {share}: {mix:?}");
            }
        }
    }

    #[test]
    fn misses_come_in_order_and_requests_once_end() {
        let mut random = Random::new(1);
        let mut mix = Mix::with_misses(requests(3), requests(3), 0.5);
        let misses: Vec<usize> =
            (0..100).filter_map(|_| mix.choose(&mut random)).filter(|&number| number >= 3).collect();
        assert!(
            misses.len() > 20 && misses.windows(2).all(|pair| pair[1] == 3 + (pair[0] - 2) % 3),
            "{misses:?}"
        );
        let mut mix = Mix::once(requests(2));
        assert!(!mix.is_exhausted());
        let chosen: Vec<_> = (0..3).map(|_| mix.choose(&mut random)).collect();
        assert_eq!(chosen, [Some(0), Some(1), None]);
        assert!(mix.is_exhausted());
    }

    #[test]
    fn a_mix_from_which_nothing_can_be_chosen_says_why() {
        for (mix, part) in [
            (Mix::uniform([]), "no requests"),
            (Mix::weighted([(-1.0, Request::get("/"))]), "all 0"),
            (Mix::with_misses(requests(1), requests(1), 1.5), "between 0 and 1"),
            (Mix::with_misses(requests(1), [], 0.5), "no misses"),
            (Mix::with_misses([], requests(1), 0.5), "no hits"),
        ] {
            assert!(mix.fault().is_some_and(|fault| fault.contains(part)), "{:?}", mix.fault());
        }
    }
}
