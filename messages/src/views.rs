//! Messages of `baton why`, `prefetch`, `stop` and of views.

use crate::catalogue::group;

group! {
    "baton why, prefetch, stop, and the other views";
    "[observe.md](observe.md) says which view answers which question, and what each reason of `baton why` means.";

    section ""; "";

    topic {
        message B0901 no_program_to_explain(program, list) = "there is no program called {program}; {list}";
        part B0902 PS_LISTS_THEM = "`baton ps` lists them";
        part B0903 STATS_LISTS_THEM = "`baton stats` lists them";
    }
    cause "The name is another.";
    remedy "Do what the message says.";

    topic {
        part B0904 is_here_already(program) = "all memory of {program} is on the GPU already";
        part B0905 came_to_the_gpu(bytes, program) = "{bytes} of {program} came to the GPU";
    }
    cause "`baton prefetch` has done its work.";

    topic {
        message B0906 waits_for_those_at_work() = "waiting until the programs at work have their memory";
    }
    cause "The programs that run, or are to run, get their memory first. `baton prefetch` goes on by itself.";

    topic {
        message B0907 no_free_room(came, left) =
            "{came} have come; the arena has no free room for the other {left}: evict an idle program, or serve with a larger --arena";
    }
    cause "`baton prefetch` makes no other program make way, and keeps the headroom free.";
    remedy "`baton evict` a program that is idle, or let this one's memory come when it goes on.";

    topic {
        message B0908 comes_in_with_others() = "the program shares memory with others, and comes in together with them";
    }
    cause "Shared memory comes when all of its programs have their turn.";

    topic {
        message B0909 many_prefetches(most) = "{most} prefetches wait already; try again when one is over";
    }
    cause "Each is a command that waits.";
    remedy "End some of them.";

    topic {
        part B0920 ends_after(programs) = "no new programs share the GPU; the coordinator ends after {programs}";
        message B0921 waits_for_the_last_program() = "waiting for the last program to leave; `baton stop --now` ends at once";
    }
    cause "`baton stop` waits for these programs, for 10 seconds or `--timeout`. A `baton run` meanwhile waits for the end and starts \
           another \
           coordinator. Ctrl-C takes back what was asked for.";

    topic {
        message B0922 still_has_programs(time, programs) =
            "after {time} the coordinator still has programs: {programs}; it ends after them, `baton stop --now` ends it at once, and `baton \
             stop --cancel` lets programs join again";
        message B0923 still_ends(time) = "the coordinator is still ending after {time}";
    }
    cause "The coordinator still ends, also when no command waits for it; the exit code is 1. `baton stop --no-wait` asks for the same at \
           once.";

    topic {
        part B0924 PROGRAMS_MAY_JOIN = "programs may join again";
        part B0925 NO_END_WAS_ASKED_FOR = "no end had been asked for";
        message B0926 end_was_cancelled() = "the end was cancelled; programs may join again";
        part B0927 HAS_ENDED = "the coordinator has ended";
        part B0928 ENDS_NOW = "the coordinator ends now";
    }
    cause "The results of `baton stop` and `baton stop --cancel`.";

    topic {
        part B0929 these_fail(programs) = "these fail, because some of their memory is on the host: {programs}";
        part B0930 these_go_on(programs) = "these go on by themselves: {programs}";
    }
    cause "The coordinator ends at once. The first get errors from their next call on; the others have all their memory on the GPU.";

    topic {
        message B0931 lobby_is_closed() = "the coordinator ends when its last program has left, because of `baton stop`";
    }
    cause "A user has said so. `baton run` waits until it has ended and then starts another; a program that joins by `LD_PRELOAD` does not \
           join.";
    remedy "When that user interrupts `baton stop`, or any command says `baton stop --cancel`, programs join again.";
}
