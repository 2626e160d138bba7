//! Messages of the library in a program.

use crate::catalogue::group;

group! {
    "A program under Baton";
    "The library in a program writes `baton: …` to standard error, or to the file that `BATON_LOG` names.";

    section "It cannot join"; "";

    topic {
        message B0301 cannot_share(program, why, remedy) =
            "baton: {program} cannot share the GPU and ends: {why}; {remedy}, or let it run without Baton (`baton run --optional`)";
        message B0302 goes_without(why, remedy) = "{why}; {remedy}; running without Baton";
    }
    cause "The program asked for the GPU and could not join a coordinator. Under `baton run` it ends with exit code 125, because many \
           programs would go on for hours without a GPU. With `--optional`, or with a bare `LD_PRELOAD`, it runs without Baton: it does not \
           share the GPU and may find too little memory.";
    remedy "The reason has the other identifier, mostly with a remedy in the message.";

    topic {
        message B0303 no_coordinator_at(socket) = "no coordinator answers at {socket}";
        part B0304 START_ONE = "start one with `baton serve`";
    }
    cause "The coordinator has ended since `baton run` found it, or `LD_PRELOAD` was set without one. If this program was started by \
           another one, a container may hide the socket.";
    remedy "Start a coordinator; in a container, mount its folder.";

    topic {
        message B0305 connection_ended(socket) = "the coordinator at {socket} ended the connection";
        part B0306 SEE_THE_LOG = "see the coordinator's log";
    }
    cause "The coordinator ended, or refused the program without a word.";
    remedy "Its log says which.";

    topic {
        message B0307 no_answer_yet(socket) = "the coordinator at {socket} does not answer yet";
        message B0308 no_answer_for(socket, seconds) = "the coordinator at {socket} has not answered for {seconds} s";
        part B0309 LET_IT_GO_ON = "let it go on if it is stopped, or end it";
    }
    cause "The coordinator is stopped or hangs. After a second the program says so, and after a minute it gives up.";
    remedy "Do what the message says.";

    topic {
        message B0310 all_places_are_taken(ahead) =
            "the limit of programs that share the GPU is reached (`baton serve --max-programs`), and {ahead} wait before this one";
    }
    cause "The program waits in order. It joins when another one leaves. `baton status` shows who waits.";

    topic {
        message B0311 memory_is_not_free(bytes, ahead) =
            "{bytes} more memory must be free for this program (`baton run --needs`), and {ahead} wait before this one";
    }
    cause "The program has said what it needs, and there is not so much yet. It joins when others have freed memory or ended. A smaller \
           one \
           that waits behind goes first after `--max-wait`.";
    remedy "`baton why NAME` says how much is missing; `baton serve --host-pool` allows more.";

    topic {
        message B0312 never_fits(bytes, limit) = "it needs {bytes} of memory, and {limit}";
        part B0313 both_are_less(arena, pool) = "arena ({arena}) and host pool ({pool}) together are less";
        part B0314 user_may_have(user, bytes) = "programs of user {user} may have {bytes} together";
    }
    cause "There can never be as much as the program needs (`baton run --needs`), so it is refused at once.";
    remedy "Start the coordinator with a larger `--host-pool`; another user's programs also need a larger quota (`--guest-host-pool`).";

    topic {
        message B0315 other_gpu(ours, name, theirs) = "this coordinator serves {ours} ({name}), the program uses {theirs}";
    }
    cause "The program uses another GPU than its coordinator.";
    remedy "Choose the program's with `CUDA_VISIBLE_DEVICES`, or the coordinator's with `baton run --gpu N`, or unset `BATON_SOCKET`.";

    topic {
        part B0316 CORRECT_THE_SCHEDULING = "correct BATON_CLASS, BATON_WEIGHT or BATON_SLO_MICROS";
    }
    cause "One of these variables has a value that it cannot have: see [settings of a program](#settings-of-a-program).";

    topic {
        message B0317 no_membarrier() = "this system has no membarrier, so calls cannot be held back";
        part B0318 USE_LINUX_4_14 = "use Linux 4.14 or newer, without a filter on this system call";
        message B0319 no_pidfd(error) = "pidfd_open: {error}";
        part B0320 USE_LINUX_5_3 = "use Linux 5.3 or newer, and check `ulimit -n`";
    }
    cause "The system lacks a call that Baton needs, or a filter (a container's seccomp profile) forbids it: `membarrier` or `pidfd_open`.";
    remedy "Allow it.";

    topic {
        message B0321 descriptors_are_missing() = "not all of the coordinator's descriptors have come";
        part B0322 ALLOW_DESCRIPTORS = "allow the program more (`ulimit -n`)";
        message B0323 page_cannot_be_mapped() = "a shared page cannot be mapped";
        part B0324 CHECK_ADDRESS_SPACE = "check `ulimit -v`";
        message B0325 no_thread() = "no thread can be started";
        part B0326 ALLOW_THREADS = "allow the program more threads (`ulimit -u`)";
    }
    cause "The program has reached one of its limits.";
    remedy "Raise it before you start the program.";

    topic {
        message B0327 no_welcome() = "the coordinator answered with something other than a welcome";
        message B0328 answer_is_no_use(error) = "the coordinator's answer cannot be used: {error}";
        message B0329 other_page_version(theirs, ours) = "the coordinator's page is of version {theirs}, not {ours}";
        part B0330 USE_ONE_BUILD = "use the same build of Baton for both";
        part B0331 SEE_DOCTOR = "see `baton doctor`";
    }
    cause "The program's library and the coordinator are of different builds.";
    remedy "Stop the coordinator, and start both from one build.";

    topic {
        message B0332 unknown_process(why) = "the coordinator cannot tell which process this is: {why}";
        part B0333 NO_DESCRIPTOR = "no descriptor came";
        part B0334 NO_PROCESS = "what it sent is no process's descriptor";
        part B0335 OTHER_PROCESS = "what it sent is another process's descriptor";
    }
    cause "The coordinator has too few descriptors, or the program has ended already, or the two are of different builds.";
    remedy "Raise the coordinator's `ulimit -n`; use one build of both.";

    topic {
        message B0336 no_more_connections() =
            "the coordinator has as many connections as it can have; try again, or start it with a higher `ulimit -n`";
    }
    cause "The program tries again by itself.";
    remedy "If this lasts, start the coordinator with a higher limit.";

    topic {
        message B0337 user_has_many_connections(user) =
            "user {user} has as many connections to this coordinator as other users may have";
        message B0338 user_connects_often(user) = "user {user} connects more often than other users may";
        message B0339 user_waits_often(programs, user) =
            "{programs} programs of user {user} wait to share the GPU already, which is the limit";
    }
    cause "Another user's programs (`--allow-uid`) have a part of a coordinator's connections and places \
           ([limits.md](limits.md#where-it-runs)): so its own user can always come. The program tries again by itself.";

    topic {
        around B0340 waits_to_join(why) = "waiting: {why}";
    }
    cause "The program waits until it can join, for the reason given. Only the first reason is told.";

    section "It has joined"; "";

    topic {
        message B0350 goes_on_alone(why) = "the coordinator is gone ({why}); this program goes on with what it has";
    }
    cause "The coordinator ended or was killed, or the program cannot go on with it for the reason given. All memory of this program is on \
           the GPU, so it goes on, alone and without sharing. Programs that start now get a new coordinator, with less memory.";

    topic {
        message B0351 calls_fail_from_here(why) =
            "the coordinator is gone ({why}) and had memory of this program; its GPU calls fail from here on (CUDA_ERROR_DEVICE_UNAVAILABLE)";
    }
    cause "Part of the program's memory was on the host, and is lost with the coordinator. Work that was interrupted goes on, and fails where \
           its memory is missing, so that calls which wait for it return with an error.";
    remedy "End the program and start it again.";

    topic {
        message B0352 memory_was_given_away() =
            "the coordinator is gone, and had given memory of this program to others because it did not answer: it is killed";
    }
    cause "The program was stopped when the coordinator ended, and others have the memory that it still has mapped. It could only read and \
           write theirs.";
    remedy "Start the program again.";

    topic {
        message B0353 results_would_be_wrong(why) = "this program could only go on with wrong results, and is killed: {why}";
        part B0354 NOT_COPIED = "its memory could not be copied";
        part B0355 NOT_TAKEN_OFF = "its work cannot be taken off the GPU";
        part B0356 NOT_PUT_BACK = "its work cannot be put back on the GPU";
    }
    cause "The driver failed in the middle of a switch. The same reasons stand in the coordinator's log (*is killed*).";
    remedy "Look at the coordinator's log for the driver's error, and at the system's log for the GPU's (`Xid`). Start the program again. \
            If \
            it happens again, use `baton serve --no-preempt`.";

    topic {
        message B0357 named_driver_does_not_open(path) =
            "BATON_DRIVER={path} is not a CUDA driver that can be opened; there is no GPU for this program";
    }
    cause "The file is no driver for this machine, or cannot be read.";
    remedy "Correct `BATON_DRIVER`, or unset it to use the system's driver.";

    topic {
        message B0358 no_such_trace(word) = "BATON_TRACE={word} is neither `counts` nor `calls`; nothing is traced";
        message B0359 trace_cannot_be_written(path, error) = "BATON_TRACE_FILE={path} cannot be written: {error}";
        message B0360 no_such_policy(word) =
            "BATON_UNKNOWN={word} is not `whole`; functions that Baton does not know stay hidden";
    }
    cause "The variable has a value that it cannot have.";
    remedy "Correct the variable.";

    topic {
        message B0361 asked_for_unknown_functions(count, fate, names) =
            "the program asked for functions of this driver that Baton does not know ({count}), and {fate}: {names}";
        part B0362 THERE_ARE_NONE = "it was told that there are none";
        part B0363 THEY_RUN_WHOLE = "they run while all memory is here";
    }
    cause "A remark in the file of `BATON_LOG`; the last such line has all names. The driver is newer than Baton, and the program does \
           without these functions, as with an older driver.";
    remedy "Look for a newer Baton, or see [limits.md](limits.md), *A driver that is newer than Baton*.";

    topic {
        message B0364 call_waits_for_all(why) = "a call {why} while memory arrives: it waits for all of it";
        part B0365 COPIES_FOREIGN_MEMORY = "copies from memory that is not Baton's";
        part B0366 COPIES_UNREADABLE_MEMORY = "copies host memory that cannot be read, or that contains addresses of host memory";
        part B0367 COPIES_UNFINISHED_MEMORY = "copies host memory that the program may still write";
        part B0368 COPIES_MUCH_MEMORY = "copies more host memory than Baton looks through";
        part B0369 COPIES_PARTS_OF_WORDS = "copies parts of words";
        part B0370 GIVES_A_HOST_ADDRESS = "gives a kernel an address of host memory";
        part B0371 LAUNCHES_AN_UNKNOWN_GRAPH = "launches a graph that allocates memory, or copies memory that Baton does not know";
        part B0372 LAUNCHES_AN_UNKNOWN_KERNEL = "launches a kernel whose parameters Baton does not know";
    }
    cause "A remark in the file of `BATON_LOG`, once for each reason. After an eviction a program runs before all of its memory is back; a \
           call of which Baton cannot see what it reaches waits for all of it (see [limits](limits.md)). Nothing is wrong.";
    remedy "If switches take longer than they could, these calls are where to look. `baton status --json` counts them (`opaque`).";

    topic {
        message B0373 gets_no_more_memory() =
            "this program can open no more descriptors, so it gets no more GPU memory: raise its limit (`ulimit -n`)";
        message B0374 waits_for_descriptors(program) =
            "{program} can open no more descriptors, and waits for its memory until it can: raise its limit (`ulimit -n`)";
    }
    cause "GPU memory comes to a program as descriptors, a few at a time, and this program has as many files open as it may. Evicted \
           memory comes back as soon as it closes one, and the others go on meanwhile. A new allocation fails. The second line is in the \
           coordinator's log.";
    remedy "Start the program with a higher `ulimit -n`, or look why it keeps so many files open.";

    topic {
        message B0375 cannot_export() =
            "memory could not be exported (error 801): this program's work on the GPU does not end, and cannot be paused";
    }
    cause "The program exports memory that lies in several pieces. The coordinator makes them one while the program is off the GPU. It can \
           pause work for that, but not here (`--no-preempt`, MPS, or `baton doctor` says why), and the program's work did not end within a \
           second.";
    remedy "Export the memory before kernels that wait for the host are launched.";

    topic {
        message B0376 cannot_be_in_one_piece(program, mib, error) = "{program} cannot have {mib} MiB in one piece: {error}";
    }
    cause "A program exports memory that lies in several pieces (B0375), and the coordinator could not reach the piece that the program \
           has made: \
           the driver's error follows. The export answers 801. The line is in the coordinator's log.";

    topic {
        message B0377 memory_is_lost(why) = "the coordinator is gone ({why}) and had memory of this program, which is lost";
        part B0378 START_IT_AGAIN = "start it again";
        part B0379 SAYS_OTHERWISE = "it sent what this version does not understand";
        part B0380 CANNOT_MAP_PAGES = "its pages cannot be mapped here";
    }
    cause "As for B0351, for a program that has to share the GPU (`baton run`, `BATON_REQUIRE=1`): it ends with exit code 125 instead of going \
           on without its memory.";
    remedy "Start the program again.";

    topic {
        message B0381 no_such_export(word) = "BATON_EXPORT={word} is not `driver`; memory that is exported goes on moving";
    }
    cause "The variable has a value that it cannot have.";
    remedy "Correct the variable.";
}
