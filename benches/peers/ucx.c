/* The work over UCX's tag calls, without anything above them.
 *
 * The sender's rank is in the upper half of a tag, as runtimes put it there; a receive from any
 * source masks it out.
 *
 * Licence: MIT or Apache-2.0, as the rest of the project. */
#include "measure.h"

#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>

typedef void *operation;

static int rank;
static ucp_worker_h worker;
static ucp_ep_h endpoint;

#define TRY(call)                                                          \
    do {                                                                   \
        ucs_status_t status_ = (call);                                     \
        if (status_ != UCS_OK)                                             \
            FAIL("%s: %s", #call, ucs_status_string(status_));             \
    } while (0)

static inline ucp_tag_t tag_of(int source, int tag)
{
    return (ucp_tag_t)(unsigned)source << 32 | (unsigned)tag;
}

static inline operation started(ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request))
        FAIL("%s", ucs_status_string(UCS_PTR_STATUS(request)));
    return request;
}

static inline void wait_one(operation request)
{
    ucs_status_t status;
    if (request == NULL)
        return;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    ucp_request_free(request);
    if (status != UCS_OK)
        FAIL("%s", ucs_status_string(status));
}

static inline operation start_send(const void *bytes, size_t size, int tag)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    return started(ucp_tag_send_nbx(endpoint, bytes, size, tag_of(rank, tag), &plain));
}

static inline operation start_recv(void *bytes, size_t size, int tag, bool any)
{
    static const ucp_request_param_t plain = {.op_attr_mask = 0};
    ucp_tag_t mask = any ? 0xffffffff : ~(ucp_tag_t)0;
    return started(ucp_tag_recv_nbx(worker, bytes, size, tag_of(!rank, tag), mask, &plain));
}

static inline void send_bytes(const void *bytes, size_t size, int tag)
{
    wait_one(start_send(bytes, size, tag));
}

static inline void recv_bytes(void *bytes, size_t size, int tag, bool any)
{
    wait_one(start_recv(bytes, size, tag, any));
}

static inline void wait_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++)
        wait_one(operations[i]);
}

static inline void cancel_all(operation *operations, int count)
{
    for (int i = 0; i < count; i++) {
        ucp_request_cancel(worker, operations[i]);
        while (ucp_request_check_status(operations[i]) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        ucp_request_free(operations[i]);
    }
}

#include "work.h"

static void write_all(int fd, const void *bytes, size_t size)
{
    if (write(fd, bytes, size) != (ssize_t)size)
        FAIL("write: %s", strerror(errno));
}

static void read_all(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = read(fd, (char *)bytes + done, size - done);
        if (got <= 0)
            FAIL("the other side is gone");
        done += (size_t)got;
    }
}

static void connect_to(int in, int out)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t worker_params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SINGLE,
    };
    ucp_ep_params_t ep_params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS};
    ucp_config_t *config;
    ucp_context_h context;
    ucp_address_t *mine, *theirs;
    size_t size;

    TRY(ucp_config_read(NULL, NULL, &config));
    TRY(ucp_init(&params, config, &context));
    ucp_config_release(config);
    TRY(ucp_worker_create(context, &worker_params, &worker));
    TRY(ucp_worker_get_address(worker, &mine, &size));
    write_all(out, &size, sizeof size);
    write_all(out, mine, size);
    ucp_worker_release_address(worker, mine);
    read_all(in, &size, sizeof size);
    theirs = malloc(size);
    if (theirs == NULL)
        FAIL("no memory");
    read_all(in, theirs, size);
    ep_params.address = theirs;
    TRY(ucp_ep_create(worker, &ep_params, &endpoint));
    free(theirs);
}

int main(int argc, char **argv)
{
    struct arguments a = parse_arguments(argc, argv);
    int to_child[2], to_parent[2], status = 0;
    pid_t child;

    if (pipe(to_child) != 0 || pipe(to_parent) != 0 || (child = fork()) < 0)
        FAIL("%s", strerror(errno));
    rank = child == 0;
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    else
        printf("version UCX %s\n", ucp_get_version_string());
    pin(a.core[rank]);
    if (rank == 0)
        connect_to(to_parent[0], to_child[1]);
    else
        connect_to(to_child[0], to_parent[1]);
    run_all(&a);
    /* Each side keeps its memory until the other side is done with it. */
    write_all(rank == 0 ? to_child[1] : to_parent[1], "", 1);
    read_all(rank == 0 ? to_parent[0] : to_child[0], &(char){0}, 1);
    if (rank == 1)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0)
        FAIL("the other side ended with status %d", status);
    return 0;
}
