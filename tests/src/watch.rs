//! The records of a coordinator's switches, read while they are made: it keeps the last 256 only.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::coordinator::{Coordinator, Place};

/// Reads a coordinator's records of switches while they are made, so that none is lost.
pub struct Watch {
    stop: Arc<AtomicBool>,
    records: Arc<Mutex<Vec<Value>>>,
    thread: JoinHandle<()>,
    place: Place,
}

impl Watch {
    /// Begins to watch.
    pub fn start(coordinator: &Coordinator) -> Self {
        let (stop, records) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (place, stopped, list) = (coordinator.place.clone(), stop.clone(), records.clone());
        let thread = std::thread::spawn(move || {
            loop {
                let last = stopped.load(Ordering::Acquire);
                read(&place, &list);
                if last {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        Self { stop, records, thread, place: coordinator.place.clone() }
    }

    /// Reads the records of all that has happened by now.
    #[track_caller]
    pub fn catch_up(&self) {
        read(&self.place, &self.records);
    }

    /// How many records so far are of a kind.
    pub fn count(&self, is_of_kind: impl Fn(&Value) -> bool) -> usize {
        let records = self.records.lock().expect("no thread panics with it");
        records.iter().filter(|record| is_of_kind(record)).count()
    }

    /// All records, oldest first.
    #[track_caller]
    pub fn stop(self) -> Vec<Value> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the watch saw every record");
        std::mem::take(&mut self.records.lock().expect("no thread panics with it"))
    }
}

/// Asks with the list locked, so that the first to ask also is the first to append.
#[track_caller]
fn read(place: &Place, list: &Mutex<Vec<Value>>) {
    let mut list = list.lock().expect("no thread panics with it");
    let status = place.try_status().unwrap_or_else(|error| panic!("{error}"));
    take_new(&mut list, &status["recent"]);
}

/// Appends the records that are not there yet; their numbers have no gap.
fn take_new(records: &mut Vec<Value>, recent: &Value) {
    for record in recent.as_array().into_iter().flatten() {
        let known = records.last().and_then(|record| record["n"].as_u64());
        let number = record["n"].as_u64().expect("a number");
        if known.is_none_or(|known| number > known) {
            assert!(known.is_none_or(|known| number == known + 1), "records were lost: {known:?}, {number}");
            records.push(record.clone());
        }
    }
}
