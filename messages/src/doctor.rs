//! Lines of `baton doctor`.

use crate::catalogue::group;

group! {
    "baton doctor";
    "Each line begins with `ok`, `less` (works, with less) or `MISSING`.";

    section ""; "";

    topic {
        message B1201 functions_are_unknown(count, names) =
            "Baton does not know {count} of the driver's functions, and hides them from programs: {names}; BATON_UNKNOWN=whole lets them run";
        part B1202 KNOWS_ALL_FUNCTIONS = "Baton knows all of the driver's functions";
        message B1203 driver_file_is_unreadable(error) = "the driver's file cannot be read: {error}";
    }
    cause "With `less` in front: the driver is newer than Baton. Programs do without its newest functions, as with an older driver.";
    remedy "Look for a newer Baton, or see [limits.md](limits.md), *A driver that is newer than Baton*.";

    topic {
        message B1204 cannot_export_memory(error) =
            "{error}; the driver has to export memory as file descriptors (Linux, not WSL, no vGPU)";
    }
    cause "Baton cannot work with this driver.";

    topic {
        message B1205 needs_linux_5_3(error) = "{error}; Linux 5.3 or newer is needed";
        message B1206 needs_membarrier() =
            "programs' calls cannot be held back; Linux 4.14 or newer without a filter on it is needed";
    }
    cause "The system lacks `pidfd_open` or `membarrier`, or a container's filter forbids it.";
    remedy "Allow it.";

    topic {
        message B1207 few_descriptors(limit) = "{limit}; raise it (`ulimit -Hn 65536`) for arenas of many small pieces";
    }
    cause "Each piece of GPU memory needs a descriptor, and the limit is low.";
    remedy "Raise it before large arenas fail.";

    topic {
        part B1208 host_memory_is_free(bytes) = "{bytes} free; evicted GPU memory is kept there (--host-pool)";
        part B1209 has_processors(count) =
            "{count}; each running program keeps one busy, and the coordinator two while it copies";
    }
    cause "With `less` in front: there is little host memory (below 4 GiB), or there are few processors (below 4). Baton works, for few \
           programs.";

    topic {
        message B1210 no_large_pages(setting) =
            "none for shared memory: with `advise` in {setting} the host pool is ready, and given back, much sooner";
    }
    cause "Linux gives shared memory pages of 4 KiB only. Then it takes seconds to make a large host pool, and to give it back when the \
           coordinator stops.";
    remedy "As root, `echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled` lets Baton ask for pages of 2 MiB.";

    topic {
        message B1211 work_is_waited_for(why) = "{why}: work is waited for";
        part B1212 NOTHING_TO_PAUSE = "the driver does not say what there is to pause";
        part B1213 KERNEL_HAD_ENDED = "a kernel had ended before it was paused";
        part B1214 could_not_be_tried(error) = "it could not be tried ({error})";
    }
    cause "Programs cannot be preempted in the middle of a kernel, so switches wait for queued work. See [limits.md](limits.md), \
           *Preemption*. If it *could not be tried*, the reason is in brackets: mostly too little free GPU memory for the two small programs \
           of the trial.";

    topic {
        part B1220 no_coordinator_yet(socket) = "none at {socket}; `baton run` starts one";
        part B1221 HAS_LARGE_PAGES = "the host pool is made of them";
        part B1222 CAN_LEND_MEMORY = "GPU memory can be lent to other processes";
        part B1223 NOTICES_ENDS = "the end of a program is noticed";
        part B1224 CAN_HOLD_BACK = "programs' calls can be held back at no cost to them";
        part B1225 CAN_PAUSE = "work can be paused in the middle of a kernel";
        part B1226 TRUST = "memory is overwritten before another program gets it; programs are trusted not to attack each other";
        part B1227 coordinator_answers_at(socket) = "answers at {socket}";
    }
    cause "All is well.";
}
