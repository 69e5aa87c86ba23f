//! Jobs that wait, in the order in which they came.
//!
//! Of a server that is gone there may be a hundred thousand: who looks for a job that may run must not look at each of
//! those. So they lie in lanes, and in each lane by their nodes. One look tells of a whole lane, or of all jobs of a
//! node, that there is no room for more.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// A job, and whose it is.
pub(super) struct Job {
    pub(super) lane: u64,
    pub(super) node: u64,
    pub(super) work: Box<dyn FnOnce() + Send>,
}

#[derive(Default)]
pub(super) struct Queue {
    /// By lane and node, with the numbers in whose order they came.
    jobs: HashMap<(u64, u64), VecDeque<(u64, Job)>>,
    /// Of each lane its nodes, by the number of the first job of each.
    lanes: HashMap<u64, BTreeMap<u64, u64>>,
    /// Lanes by the number of the first job of each.
    order: BTreeMap<u64, u64>,
    len: usize,
    next: u64,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, job: Job) {
        let (lane, node, number) = (job.lane, job.node, self.next);
        self.next += 1;
        self.len += 1;
        let same = self.jobs.entry((lane, node)).or_default();
        same.push_back((number, job));
        if same.len() == 1 {
            let nodes = self.lanes.entry(lane).or_default();
            if nodes.is_empty() {
                self.order.insert(number, lane);
            }
            nodes.insert(number, node);
        }
    }

    /// Lanes in the order of their first jobs, with their nodes in that order, and how many jobs each has.
    pub(super) fn lanes(&self) -> impl Iterator<Item = (u64, impl Iterator<Item = (u64, usize)>)> {
        self.order.values().map(move |&lane| {
            let nodes = self.lanes.get(&lane).into_iter().flat_map(BTreeMap::values);
            (lane, nodes.map(move |&node| (node, self.jobs.get(&(lane, node)).map_or(0, VecDeque::len))))
        })
    }

    /// Takes the first job of that lane and node.
    pub(super) fn take(&mut self, lane: u64, node: u64) -> Option<Job> {
        let same = self.jobs.get_mut(&(lane, node))?;
        let (number, job) = same.pop_front()?;
        let following = same.front().map(|(number, _)| *number);
        if following.is_none() {
            self.jobs.remove(&(lane, node));
        }
        self.len -= 1;
        let nodes = self.lanes.entry(lane).or_default();
        let first = nodes.first_key_value().map(|(&number, _)| number);
        nodes.remove(&number);
        if let Some(following) = following {
            nodes.insert(following, node);
        }
        let now_first = nodes.first_key_value().map(|(&number, _)| number);
        if first != now_first {
            first.map(|number| self.order.remove(&number));
            now_first.map(|number| self.order.insert(number, lane));
        }
        if now_first.is_none() {
            self.lanes.remove(&lane);
        }
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_the_order_of_their_lanes_and_nodes() {
        let mut queue = Queue::default();
        let mut model: Vec<(u64, u64, u64)> = Vec::new();
        let (done, finished) = std::sync::mpsc::channel();
        let mut random = 1_u64;
        for number in 0..5000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (lane, node) = ((random >> 40) % 4, (random >> 50) % 3);
            // More come than go, then more go than come.
            if (random >> 33) % 100 < if number < 2500 { 70 } else { 20 } {
                let done = done.clone();
                queue.push(Job { lane, node, work: Box::new(move || done.send(number).unwrap()) });
                model.push((lane, node, number));
            } else {
                let place = model.iter().position(|&(of_lane, of_node, _)| (of_lane, of_node) == (lane, node));
                let expected = place.map(|place| model.remove(place).2);
                let taken = queue.take(lane, node).map(|job| {
                    (job.work)();
                    finished.recv().unwrap()
                });
                assert_eq!(taken, expected);
            }
            // The first lane is that of the job that came first, and so is the first node of each lane.
            let first_of = |lane: u64| model.iter().find(|&&(own, ..)| own == lane).map(|&(_, node, _)| node);
            assert_eq!(queue.lanes().next().map(|(lane, _)| lane), model.first().map(|&(lane, ..)| lane));
            let mut count = 0;
            for (lane, mut nodes) in queue.lanes() {
                let (first, of_first) = nodes.next().unwrap();
                assert_eq!(Some(first), first_of(lane));
                count += of_first + nodes.map(|(_, count)| count).sum::<usize>();
            }
            assert_eq!((count, queue.len(), queue.is_empty()), (model.len(), model.len(), model.is_empty()));
        }
        assert!(queue.jobs.len() <= 12 && queue.lanes.len() == queue.order.len());
    }
}
