//! Endpoints that know each other.

use std::time::{Duration, Instant};

use super::{Domain, Endpoint, Entry, Hints, Name, Queue, QueueSettings, Vector, sys};

/// The longest time that a test waits for something. Much more than it takes.
const LIMIT: Duration = Duration::from_secs(30);
/// Rounds of progress in which everything that is under way in this process comes to its end.
const ROUNDS: usize = 300;

/// An endpoint that is enabled, with a domain, an address vector and a completion queue of its own.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) domain: Domain,
    pub(crate) vector: Vector,
    pub(crate) queue: Queue,
    pub(crate) endpoint: Endpoint,
    pub(crate) name: Name,
}

impl Node {
    /// An endpoint for the usual hints.
    pub(crate) fn new() -> Self {
        let both = sys::FI_TRANSMIT | sys::FI_RECV;
        Node::of(&Hints::default(), QueueSettings::default(), both)
    }

    /// An endpoint that is bound to its queue with these flags.
    pub(crate) fn of(hints: &Hints, settings: QueueSettings, bind_flags: u64) -> Self {
        Node::in_domain(Domain::of(hints), settings, bind_flags)
    }

    /// An endpoint of this domain.
    pub(crate) fn in_domain(domain: Domain, settings: QueueSettings, bind_flags: u64) -> Self {
        // SAFETY: `fi_getinfo` gave all parts.
        let vector = domain.vector(unsafe { (*(*domain.info).domain_attr).av_type });
        let queue = domain.queue(settings);
        let endpoint = domain.endpoint();
        endpoint.bind_vector(vector).expect("a vector is bound");
        endpoint.bind_queue(queue, bind_flags).expect("a queue is bound");
        endpoint.enable().expect("the endpoint is enabled");
        Node { domain, vector, queue, endpoint, name: endpoint.name() }
    }

    /// Closes all objects.
    pub(crate) fn close(&self) {
        self.close_in_domain();
        self.domain.close();
    }

    /// Closes all objects but the domain.
    pub(crate) fn close_in_domain(&self) {
        self.endpoint.close().expect("an endpoint closes");
        self.queue.close().expect("a queue without endpoints closes");
        self.vector.close().expect("a vector without endpoints closes");
    }
}

/// Several endpoints. The address vector of each has the names of all, in the same order, itself
/// included: `address(2)` is endpoint 2 for all of them.
pub(crate) struct World {
    nodes: Vec<Node>,
    addresses: Vec<u64>,
}

impl World {
    /// So many endpoints for the usual hints.
    pub(crate) fn new(count: usize) -> Self {
        World::with((0..count).map(|_| Node::new()).collect())
    }

    /// So many endpoints whose queues threads can wait for.
    pub(crate) fn waiting(count: usize, wait: sys::fi_wait_obj) -> Self {
        let settings = QueueSettings { wait, ..QueueSettings::default() };
        let both = sys::FI_TRANSMIT | sys::FI_RECV;
        World::with((0..count).map(|_| Node::of(&Hints::default(), settings, both)).collect())
    }

    /// So many endpoints for these hints, bound with these flags.
    pub(crate) fn of(count: usize, hints: &Hints, bind_flags: u64) -> Self {
        let node = |_| Node::of(hints, QueueSettings::default(), bind_flags);
        World::with((0..count).map(node).collect())
    }

    /// These endpoints.
    pub(crate) fn with(nodes: Vec<Node>) -> Self {
        let names: Vec<Name> = nodes.iter().map(|node| node.name).collect();
        let mut addresses = Vec::new();
        for node in &nodes {
            let (count, own) = node.vector.insert(&names);
            assert_eq!(count, Ok(names.len()));
            assert!(addresses.is_empty() || addresses == own, "vectors count alike");
            addresses = own;
        }
        World { nodes, addresses }
    }

    /// What stands for an endpoint in all address vectors.
    pub(crate) fn address(&self, node: usize) -> u64 {
        self.addresses[node]
    }

    pub(crate) fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    pub(crate) fn endpoint(&self, node: usize) -> Endpoint {
        self.nodes[node].endpoint
    }

    pub(crate) fn queue(&self, node: usize) -> Queue {
        self.nodes[node].queue
    }

    /// One round of progress on all endpoints.
    pub(crate) fn progress(&self) {
        self.nodes.iter().for_each(|node| node.queue.progress());
    }

    /// Makes progress on all endpoints until `look` finds something.
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        within_limit(what, || {
            self.progress();
            look()
        })
    }

    /// The next entry of an endpoint's queue.
    pub(crate) fn entry(&self, node: usize) -> Entry {
        self.until(&format!("an entry of endpoint {node}"), || self.queue(node).poll())
    }

    /// The next entry of an endpoint's queue, which tells that the operation with this context has
    /// succeeded.
    pub(crate) fn success(&self, node: usize, context: usize) -> Entry {
        let entry = self.entry(node);
        assert_eq!((entry.context, entry.failure), (context, 0), "{entry:x?}");
        entry
    }

    /// The next entry of an endpoint's queue, which tells that the operation with this context has
    /// failed, with this error number.
    pub(crate) fn failure(&self, node: usize, context: usize, errno: i32) -> Entry {
        let entry = self.entry(node);
        assert_eq!((entry.context, entry.failure), (context, errno), "{entry:x?}");
        let words = self.queue(node).words(entry.reason);
        assert!(
            words.len() > 10 && words != "no error" && !words.starts_with("unknown"),
            "{words}"
        );
        entry
    }

    /// Lets everything that is under way come to its end.
    pub(crate) fn settle(&self) {
        (0..ROUNDS).for_each(|_| self.progress());
    }

    /// Nothing is under way that makes an entry anywhere, and no entry waits.
    pub(crate) fn expect_silence(&self) {
        self.settle();
        for (number, node) in self.nodes.iter().enumerate() {
            let entry = node.queue.poll();
            assert!(entry.is_none(), "endpoint {number} has an entry: {entry:x?}");
        }
    }

    /// Posts receives before their messages are sent, or after the messages have arrived.
    pub(crate) fn meet<P, S>(
        &self,
        is_unexpected: bool,
        post: impl Fn() -> P,
        send: impl Fn() -> S,
    ) {
        if is_unexpected {
            send();
            self.settle();
        }
        post();
        if !is_unexpected {
            send();
        }
    }
}

/// Closes all objects. Messages that nobody receives hold the end up, so there must be none.
impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.nodes.iter().for_each(Node::close);
        }
    }
}

/// Looks again and again until something is found.
pub(crate) fn within_limit<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "there was not {what} for {LIMIT:?}");
        std::thread::yield_now();
    }
}
