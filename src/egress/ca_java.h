/* The root's certificate as a trust store of Java, which reads no PEM. One-shot only. */
#pragma once

#include <openssl/x509.h>

#include "util/buf.h"
#include "util/err.h"

/* Appends a store with this one certificate, the same bytes for the same certificate: a JKS file as
 * every Java's cacerts may be, under Java's own password ("changeit"). -EIO, -ENOMEM. */
int ca_java_store(X509 *cert, struct buf *ret, struct err *err);
