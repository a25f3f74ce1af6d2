/* Tells the service manager how the daemon is doing, where one asks for it: sd_notify(3). */
#pragma once

/* Sends `state` ("READY=1\n..."), to the socket named by NOTIFY_SOCKET of the environment that
 * paddockd was started with (secrets_variable). Does nothing when there is none; never blocks, and
 * a manager that does not take it is no reason to fail. */
void notify_manager(const char *state);
/* Before a reload: systemd asks for the time too. After it: notify_manager("READY=1"). */
void notify_reloading(void);
