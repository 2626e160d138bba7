use core::sync::atomic::{AtomicU32, Ordering};

use super::passage::GATE;
use super::protocol::OPEN;
use super::*;
use baton_contract::page::{RequestRing, RequestTimes, TenantPage};
use core::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

/// There is one gate a process, so tests take turns with it.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// Some call that passes the gate.
pub(crate) fn call() {
    drop(pass().expect("not broken"));
}

/// Makes this process one that stamps its requests, until it is dropped.
pub(crate) struct Stamping {
    pub(crate) ring: &'static RequestRing,
    rests: &'static AtomicU32,
}

impl Stamping {
    pub(crate) fn begin() -> Self {
        let page: &'static TenantPage = Box::leak(Box::default());
        activity::use_page(0, Box::leak(Box::default()), 0);
        activity::take_seat(0);
        stamps::use_page(0, page);
        Self { ring: &page.requests, rests: &page.rests }
    }

    pub(crate) fn ended(&self) -> Vec<RequestTimes> {
        let mut times = Vec::new();
        self.ring.read(0, |request| times.push(request));
        times
    }
}

impl Drop for Stamping {
    fn drop(&mut self) {
        stamps::forget();
        activity::end();
        activity::give_up_slot(0);
    }
}

#[test]
fn a_request_begins_with_the_first_call_after_rest() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(prepare());
    let stamping = Stamping::begin();
    closing::open(false);
    drop(pass().expect("not broken"));
    assert_eq!(stamping.ring.present(), None, "nobody looks at an open gate");
    assert!(closing::rest());
    drop(pass().expect("not broken"));
    while !stamps::is_any() {
        thread::yield_now();
    }
    let began = stamping.ring.present();
    assert!(closing::rest());
    drop(pass().expect("not broken"));
    assert_eq!(stamping.ring.present(), began, "it has not ended");
    stamps::end(stamps::now());
    let ended = stamping.ended();
    assert!(ended.len() == 1 && Some(ended[0].began) == began, "{ended:?}");
}

#[test]
fn a_rest_is_said_to_be_over_before_a_call_passes() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    open(false);
    let stamping = Stamping::begin();
    let rests = || stamping.rests.load(Ordering::SeqCst);
    let before = stamps::rests_before();
    assert!(rest_alone() && rests().is_multiple_of(2), "nobody has looked yet whether a call came");
    stamps::rest(&before);
    let said = rests();
    assert!(!said.is_multiple_of(2));
    call();
    assert_eq!(rests(), said + 1);
    // A call comes before the rest is stamped.
    let before = stamps::rests_before();
    assert!(rest_alone());
    call();
    stamps::rest(&before);
    assert!(rests().is_multiple_of(2));
    // The control loop ends it.
    let before = stamps::rests_before();
    assert!(rest_alone());
    stamps::rest(&before);
    work_on();
    assert!(rests().is_multiple_of(2));
}

#[test]
fn a_request_begins_with_the_first_call_that_finds_the_gate_closed() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(prepare());
    let stamping = Stamping::begin();
    for has_slot in [true, false] {
        if !has_slot {
            activity::give_up_slot(0);
        }
        assert!(closing::close(None, || ()));
        let closed = stamps::now();
        thread::scope(|scope| {
            scope.spawn(|| drop(pass().expect("not broken")));
            while !is_waited_at() || has_slot && !stamps::is_any() {
                thread::yield_now();
            }
            closing::open(false);
        });
        match stamping.ring.present() {
            Some(began) => assert!(has_slot && (closed..=stamps::now()).contains(&began)),
            None => assert!(!has_slot),
        }
        stamps::end(stamps::now());
    }
    assert_eq!(stamping.ended().len(), 1);
}

#[test]
fn nobody_is_inside_after_the_gate_is_closed() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(prepare());
    static INSIDE: AtomicU64 = AtomicU64::new(0);
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let passage = pass().expect("not broken");
                    INSIDE.fetch_add(1, Ordering::Relaxed);
                    PASSED.fetch_add(1, Ordering::Relaxed);
                    INSIDE.fetch_sub(1, Ordering::Relaxed);
                    drop(passage);
                }
            });
        }
        for _ in 0..500 {
            assert!(closing::close(None, || ()));
            assert_eq!(INSIDE.load(Ordering::Relaxed), 0);
            let passed = PASSED.load(Ordering::Relaxed);
            thread::yield_now();
            assert_eq!(PASSED.load(Ordering::Relaxed), passed, "somebody passed a closed gate");
            closing::open(false);
            while PASSED.load(Ordering::Relaxed) == passed {
                thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn calls_that_waited_at_the_gate_pass_before_it_is_closed_again() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(prepare());
    let later = || Instant::now() + Duration::from_secs(3600);
    assert!(closing::close(None, || ()));
    for _ in 0..100 {
        let passed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _passage = pass().expect("not broken");
                passed.store(true, Ordering::Release);
            });
            while !is_waited_at() {
                thread::yield_now();
            }
            closing::open(false);
            closing::let_through(later(), || ());
            assert!(closing::close(None, || ()));
            let has_passed = passed.load(Ordering::Acquire);
            if !has_passed {
                closing::open(false);
            }
            assert!(has_passed, "the gate was closed before the call that waited at it had passed");
        });
    }
    closing::open(false);
}

#[test]
fn a_call_made_inside_a_call_does_not_wait_for_the_gate() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert!(prepare());
    let outer = pass().expect("not broken");
    thread::scope(|scope| {
        let closer = scope.spawn(|| closing::close(None, || ()));
        while GATE.peek() == OPEN {
            thread::yield_now();
        }
        drop(pass().expect("not broken"));
        assert!(!closer.is_finished(), "closed while a thread was inside");
        drop(outer);
    });
    closing::open(false);
    assert_eq!(closing::inside(), 0);
}

#[test]
fn a_thread_that_ends_leaves_its_word_to_the_next() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let word = || {
        drop(pass().expect("not broken"));
        word::own_or_new().map(|word| ptr::from_ref(word) as usize)
    };
    let first = thread::spawn(word).join().expect("the thread ran");
    let second = thread::spawn(word).join().expect("the thread ran");
    assert_eq!(first, second);
}

unsafe extern "C-unwind" {
    /// As the driver's calls may: returns when a signal came, or ends the thread when it is cancelled.
    fn pause() -> libc::c_int;
}

#[test]
fn a_thread_that_is_cancelled_inside_is_inside_no_more() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    unsafe extern "C-unwind" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        let _passage = pass().expect("not broken");
        // SAFETY: no arguments.
        unsafe { pause() };
        ptr::null_mut()
    }
    // SAFETY: two function types that differ in what unwinding may do, which C does not tell apart.
    let body = unsafe {
        core::mem::transmute::<
            unsafe extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
            extern "C" fn(*mut libc::c_void) -> *mut libc::c_void,
        >(body)
    };
    let mut thread = 0;
    // SAFETY: a plain thread without attributes or argument, joined below.
    unsafe {
        assert_eq!(libc::pthread_create(&mut thread, ptr::null(), body, ptr::null_mut()), 0);
        while closing::inside() == 0 {
            thread::yield_now();
        }
        assert_eq!(libc::pthread_cancel(thread), 0);
        assert_eq!(libc::pthread_join(thread, ptr::null_mut()), 0);
    }
    assert_eq!(closing::inside(), 0);
}

#[test]
fn a_forked_child_has_an_open_gate_with_nobody_inside() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (inside, leave) = (AtomicBool::new(false), AtomicBool::new(false));
    let stamping = Stamping::begin();
    stamping.ring.begin(stamps::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            let _passage = pass().expect("not broken");
            inside.store(true, Ordering::Release);
            while !leave.load(Ordering::Acquire) {
                thread::yield_now();
            }
        });
        while !inside.load(Ordering::Acquire) {
            thread::yield_now();
        }
        GATE.close();
        extern "C" fn in_the_child() {
            start_anew();
        }
        // SAFETY: the handler stores to atomics that live for ever, nothing else.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
        // SAFETY: the child only reads atomics and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let anew = closing::inside() == 0 && GATE.load() == OPEN && !stamps::is_any();
            // SAFETY: ends the child at once, without the harness's exit handlers.
            unsafe { libc::_exit(if anew { 0 } else { 1 }) };
        }
        closing::open(false);
        leave.store(true, Ordering::Release);
        let mut status = -1;
        // SAFETY: our own child and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}
