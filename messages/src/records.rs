//! Messages about records, traces and plans.

use crate::catalogue::group;

group! {
    "Records, baton trace and baton fit"; "";

    section "Records"; "";

    topic {
        message B1001 reads_a_record(name, end) =
            "no coordinator runs; this is the record {name}, until {end} (`baton records` lists them)";
    }
    cause "`stats`, `logs`, `trace` and `why` then tell what the last coordinator has left behind. `--record` reads an older one.";

    topic {
        message B1002 no_such_record(name) = "there is no record {name}; `baton records` lists them";
        part B1003 NO_RECORDS = "there are no records yet";
    }
    cause "Coordinators leave records in `$XDG_STATE_HOME/baton` (`~/.local/state/baton`), units in `/var/lib/baton`: each at most 8 MiB, \
           24 \
           of them and 64 MiB at most together. The oldest ones go.";

    topic {
        message B1004 nothing_is_recorded(error) = "events are not recorded: {error}";
        message B1005 is_not_recorded_in(folder, error) = "events are not recorded in {folder}: {error}";
    }
    cause "The coordinator serves all the same. There is no room on the disk, or the folder cannot be written, or others can enter it: see \
           the rest of the line.";
    remedy "`baton serve --no-record` wants no record.";

    section "baton trace"; "";

    topic {
        message B1010 knows_only_the_last(period, since) =
            "the coordinator only knows the last {period}, since {since}; `--for` records from now on, for as long as you like";
    }
    cause "More has happened than the coordinator remembers (65,536 events). The file has what it knows.";
    remedy "To have more, record what is to come.";

    topic {
        message B1011 is_recording() = "recording; Ctrl-C ends it, and writes what there is";
    }
    cause "A remark. All events from here on will be in the file.";

    topic {
        message B1012 recording_ends(error) = "the recording ends here: {error}";
    }
    cause "The coordinator has ended, or does not answer any more, for the reason given. The file has what happened until then.";

    topic {
        message B1013 events_are_missing(count) = "{count} events are missing: they came too fast";
    }
    cause "More happened between two looks than the coordinator remembers: this command was stopped, or hardly got a processor. The file \
           has \
           a gap.";

    section "baton fit"; "";

    topic {
        part B1020 fit_together(all, arena) = "They fit the GPU together: {all} of {arena}. Nothing has to move.";
        part B1021 fit_in_turns(all, arena, away, pool) =
            "They fit, in turns: {all}, of which the GPU holds {arena} and the host {away} of {pool}.";
    }
    cause "In turns, each switch copies at most what the table says.";
    remedy "Start them.";

    topic {
        part B1022 need_more_host_memory(all, arena, away, pool, needed) =
            "They do not fit: {all}, of which the GPU holds {arena}; that leaves {away} for the host, and the host pool has {pool}. The last \
             one is out of memory. Take `baton serve --host-pool {needed}` if there is so much host memory, or fewer or smaller programs.";
        part B1023 one_is_too_large(arena, programs) =
            "They do not fit: the GPU holds {arena}, and one program alone has more ({programs}).";
    }
    cause "A program that is larger than the arena alone needs a larger `--arena`, or a larger GPU.";
    remedy "Give the coordinator a larger host pool, or programs a smaller fraction.";

    topic {
        message B1024 plans_without_a_gpu(error) = "{error}; `--gpu-memory 80GB` plans for a GPU that is not here";
    }
    cause "`baton fit` found neither a coordinator nor a GPU to plan for.";
    remedy "Say how much memory the GPU has for which you plan.";

    topic {
        message B1025 has_not_run_lately(program) = "no program called {program} has run here lately; say how much it has with --size";
        message B1026 no_rate(word) = "`{word}` is no number; write for example 50";
        message B1027 rate_is_too_low() = "a bus copies more than 0 GB/s";
    }
    cause "Baton remembers how much memory programs had that have ended: 256 of them, by name, in the user's state folder. `--bus` is in \
           GB/s.";
    remedy "Do what the message says.";
}
