// Package topicadmin finds, checks and creates the topics of a group, and names the commands that
// mend missing topics and rights.
package topicadmin
